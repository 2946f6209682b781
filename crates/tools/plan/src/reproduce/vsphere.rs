//! The article on iSCSI and NVMe over RoCE v2 under a hypervisor: its published differences, what follows from them, and where they contradict each other.
//!
//! The article publishes differences alone, so that every check is arithmetic on ratios.

mod measured;

pub use measured::Measured;

use super::{Check, number, own_section};
use crate::published::{Protocols, PublishedDifference, protocols};
use crate::sheet::{Cell, Row, Section, Sheet, Source};
use crate::units::percent_text;

/// Published differences have a decimal, so that a product of two ratios is off by less than this.
const ROUNDING: f64 = 0.002;

/// The article on two protocols under a hypervisor, by its own figures, and beside what was measured, if anything was.
#[must_use]
pub fn vsphere(measured: &Measured) -> Sheet {
    let article = protocols();
    let mut sheet = Sheet::new(
        "reproduce",
        "The article on iSCSI and NVMe over RoCE v2 under vSphere, beside its own figures",
    );
    sheet.sections.push(setup_section(&article));
    sheet.sections.push(differences_section(&article, measured));
    if !measured.is_empty() {
        sheet
            .sections
            .push(measured::equal_rate_section(&article, measured));
    }
    let checks = checks(&article);
    let (answer, checks) = own_section(checks);
    sheet.answer = answer;
    sheet.sections.push(checks);
    sheet.sections.push(consequences_section(&article));
    sheet.caveats.extend(measured::caveats(measured));
    sheet.caveats.extend(caveats(&article));
    sheet
}

fn caveats(article: &Protocols) -> Vec<String> {
    [
        &format!("Published by: {}", article.source),
        "Published are differences alone: no absolute rate or latency stands here, none is read off a chart, and no sentence is quoted. The words of this report are Weir's.",
        "Assumed: its SQL 90/10 and Oracle 90/10 are those of the public vdbench script that uses these names, 90% reads of 8 KiB at random in both; they differ there in threads alone.",
        "Assumed: each host has one link of the published speed that carries storage; how many there were is not known here.",
        "NVMe over Fibre Channel is named in the article too. Weir does not speak it: it needs Fibre Channel hardware.",
        "Weir does not speak NVMe over RDMA either: its NVMe side is NVMe/TCP, so that a run with it compares other protocols than the article did.",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn setup_section(article: &Protocols) -> Section {
    let (setup, background) = (&article.setup, &article.background);
    let row = |name: &str, label: &str, unit: &str, value: f64, text: String| {
        Row::new(
            name,
            label,
            unit,
            vec![Cell::new(value, text, Source::Published)],
        )
    };
    let count =
        |name: &str, label: &str, of: u32| row(name, label, "", f64::from(of), of.to_string());
    let reads = |value: f64| weir_report::words::grouped(value as u64);
    let microseconds = |value: f64| weir_report::words::latency(value * 1e3);
    Section {
        name: "setup".to_owned(),
        title: "The published test".to_owned(),
        words: "One all-flash array, by iSCSI and then by NVMe over RoCE v2.".to_owned(),
        columns: vec!["published".to_owned()],
        rows: vec![
            count("hosts", "Hosts", setup.hosts),
            count("machines", "Virtual machines", setup.machines),
            count(
                "machines-per-host",
                "Virtual machines of a host",
                setup.machines_per_host,
            ),
            row(
                "machine-size",
                "Disk of a virtual machine",
                "bytes",
                setup.machine_gigabytes * 1e9,
                format!("{} GB", setup.machine_gigabytes),
            ),
            row(
                "size",
                "All disks",
                "bytes",
                setup.gigabytes * 1e9,
                format!("{} GB", setup.gigabytes),
            ),
            row(
                "link",
                "Link",
                "bits/s",
                setup.link_gigabits * 1e9,
                format!("{} GbE", setup.link_gigabits),
            ),
            row(
                "sata",
                "4K reads of a SATA SSD, below",
                "requests/s",
                background.sata_reads,
                reads(background.sata_reads),
            ),
            row(
                "nvme",
                "4K reads of an NVMe SSD",
                "requests/s",
                background.nvme_reads,
                reads(background.nvme_reads),
            ),
            row(
                "pooled",
                "Latency of pooled NVMe, about",
                "us",
                background.nvme_microseconds,
                microseconds(background.nvme_microseconds),
            ),
            row(
                "iscsi",
                "Latency of all-flash behind iSCSI, at least",
                "us",
                background.iscsi_microseconds,
                microseconds(background.iscsi_microseconds),
            ),
        ],
    }
}

/// A difference in percent, with its sign.
fn signed(percent: f64) -> String {
    format!("{percent:+.1}%")
}

/// The name of a row that is about a workload at a load.
fn row_name(of: &PublishedDifference) -> String {
    format!("{}-at-{}", of.workload, of.load_percent)
}

fn row_label(of: &PublishedDifference) -> String {
    format!("{} at {}%", of.title, of.load_percent)
}

fn differences_section(article: &Protocols, measured: &Measured) -> Section {
    let rows = article.differences.iter().map(|of| {
        let throughput = of.throughput_percent.map_or_else(
            || Cell::word("not published", Source::Published),
            |percent| Cell::new(percent, signed(percent), Source::Published),
        );
        let latency = Cell::new(
            of.latency_percent,
            signed(of.latency_percent),
            Source::Published,
        );
        let in_flight = of.throughput().map_or_else(
            || Cell::word("unknown", Source::Derived),
            |throughput| {
                let ratio = throughput * of.latency();
                Cell::new(ratio, number(ratio, 2), Source::Derived)
            },
        );
        let times_less = 1.0 / of.latency();
        let less = Cell::new(
            times_less,
            format!("1/{}", number(times_less, 2)),
            Source::Derived,
        );
        let mut cells = vec![throughput, latency, less, in_flight];
        if !measured.is_empty() {
            cells.extend(measured::beside(measured, of));
        }
        Row::new(row_name(of), row_label(of), "", cells)
    });
    let mut columns = vec![
        "throughput",
        "latency",
        "latency, of iSCSI's",
        "in flight, of iSCSI's",
    ];
    if !measured.is_empty() {
        columns.extend(["throughput, measured", "mean latency, measured"]);
    }
    Section {
        name: "differences".to_owned(),
        title: "NVMe over RoCE v2 against iSCSI, at parts of each side's own maximum".to_owned(),
        words: "In flight is throughput times latency (Little's law), as a multiple of iSCSI's."
            .to_owned(),
        columns: columns.into_iter().map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

fn checks(article: &Protocols) -> Vec<Check> {
    let mut checks = vec![size_check(article)];
    checks.extend(article.differences.iter().filter_map(equal_load_check));
    checks.push(transport_check());
    checks
}

fn size_check(article: &Protocols) -> Check {
    let setup = &article.setup;
    let machines = setup.hosts * setup.machines_per_host;
    let size = f64::from(setup.machines) * setup.machine_gigabytes;
    Check {
        name: "size".into(),
        claim: format!(
            "{} virtual machines, {} a host, and {} GB in all",
            setup.machines, setup.machines_per_host, setup.gigabytes
        ),
        figures: format!("{machines} virtual machines, {} GB", number(size, 0)),
        agrees: machines == setup.machines && (size - setup.gigabytes).abs() < 0.5,
        arithmetic: format!(
            "{} hosts x {}; {} x {} GB",
            setup.hosts, setup.machines_per_host, setup.machines, setup.machine_gigabytes
        ),
    }
}

/// Both sides with as much in flight: then throughput grows by as much as latency shrinks.
fn equal_load_check(of: &PublishedDifference) -> Option<Check> {
    let (throughput, latency) = (of.throughput()?, of.latency());
    let in_flight = throughput * latency;
    Some(Check {
        name: format!("equal-load-{}", of.workload).into(),
        claim: format!("{}: both sides carry as much in flight", row_label(of)),
        figures: format!("{} of iSCSI's in flight", number(in_flight, 2)),
        agrees: (in_flight - 1.0).abs() <= ROUNDING,
        arithmetic: format!(
            "{} x {} = {}; with as much in flight on both sides {} of latency goes with {} of throughput, and not with {}: the load changed too, and part of the difference is the load's",
            number(throughput, 3),
            number(latency, 3),
            number(in_flight, 3),
            signed(of.latency_percent),
            signed((1.0 / latency - 1.0) * 100.0),
            signed((throughput - 1.0) * 100.0),
        ),
    })
}

fn transport_check() -> Check {
    Check {
        name: "transport".into(),
        claim: "RoCE v2 runs on TCP, says one paragraph".to_owned(),
        figures: "on UDP, says another, and that is right".to_owned(),
        agrees: false,
        arithmetic: "one of the two paragraphs is wrong: RoCE v2 is UDP, to port 4791, so that nothing below RDMA sends again what the network loses; no figure depends on it".to_owned(),
    }
}

/// What the figures do not say in so many words, and follows from them.
fn consequences_section(article: &Protocols) -> Section {
    let rates = (article.differences.iter()).filter_map(equal_rate);
    let others = [
        same_requests(article),
        toward_the_maximum(article),
        background(article),
        drives(article),
        link(article),
    ];
    Section {
        name: "consequences".to_owned(),
        title: "What follows from its figures".to_owned(),
        words: "Not said by the article: arithmetic on what it published, and what that means for who reads it.".to_owned(),
        columns: vec!["by arithmetic".to_owned()],
        rows: rates.chain(others.into_iter().flatten()).collect(),
    }
}

fn consequence(
    name: impl Into<String>,
    label: impl Into<String>,
    value: f64,
    text: String,
    how: String,
) -> Row {
    Row::new(
        name,
        label,
        "",
        vec![Cell::new(value, text, Source::Derived)],
    )
    .how(how)
}

/// Parts of maxima are no equal rates: one side's part may be more than the other can.
fn equal_rate(of: &PublishedDifference) -> Option<Row> {
    let throughput = of.throughput()?;
    let own = f64::from(of.load_percent) / 100.0;
    let part = own * throughput;
    let meaning = if part > 1.0 {
        "more than iSCSI can: at NVMe-oF's rate iSCSI has no latency to compare with"
    } else {
        "nearer to iSCSI's maximum than iSCSI itself was measured at: at one rate the latencies differ by more"
    };
    Some(consequence(
        format!("equal-rate-{}", of.workload),
        format!("{}: NVMe-oF's rate, of iSCSI's maximum", row_label(of)),
        part,
        percent_text(part),
        format!(
            "{} x {} = {}, {meaning}; at the same part of each maximum {} is the difference of the maxima",
            percent_text(own),
            number(throughput, 3),
            percent_text(part),
            signed((throughput - 1.0) * 100.0)
        ),
    ))
}

/// Two workloads of the same requests, at the same part of the maximum.
fn same_requests(article: &Protocols) -> Option<Row> {
    let factor = |workload| Some(1.0 / article.difference(workload, 100)?.latency());
    let (sql, oracle) = (factor("sql-90-10")?, factor("oracle-90-10")?);
    Some(consequence(
        "same-requests",
        "SQL 90/10 against Oracle 90/10 at 100%, factors of latency",
        sql / oracle,
        format!("{} against {}", number(sql, 2), number(oracle, 2)),
        format!(
            "1 / {} and 1 / {}, {} times apart; where both are the public script's (assumed), they send the same requests and differ in threads alone: then this is the depth's, or chance, and not the application's",
            number(1.0 / sql, 3),
            number(1.0 / oracle, 3),
            number(sql / oracle, 1)
        ),
    ))
}

/// From 80% to 100%, which side's latency grows more.
fn toward_the_maximum(article: &Protocols) -> Option<Row> {
    let growth = |workload| {
        let (part, full) = (
            article.difference(workload, 80)?,
            article.difference(workload, 100)?,
        );
        Some((full.latency(), part.latency()))
    };
    let (sql, oracle) = (growth("sql-90-10")?, growth("oracle-90-10")?);
    let (one, other) = (sql.0 / sql.1, oracle.0 / oracle.1);
    let meaning = if (one < 1.0) == (other < 1.0) {
        "the same way with both"
    } else {
        "with one NVMe-oF gains toward the maximum, and with the other it loses: no single sentence on how its advantage goes with load fits both"
    };
    Some(consequence(
        "toward-the-maximum",
        "From 80% to 100% NVMe-oF's latency grows, of iSCSI's growth: SQL 90/10 and Oracle 90/10",
        one / other,
        format!("{}x and {}x", number(one, 2), number(other, 2)),
        format!(
            "{} / {} and {} / {}; {meaning}",
            number(sql.0, 3),
            number(sql.1, 3),
            number(oracle.0, 3),
            number(oracle.1, 3)
        ),
    ))
}

/// The latencies of the background beside those of the published tests.
fn background(article: &Protocols) -> Option<Row> {
    let of = &article.background;
    let told = of.nvme_microseconds / of.iscsi_microseconds - 1.0;
    let latencies = article.differences.iter().map(|of| of.latency_percent);
    let best = latencies.reduce(f64::min)?;
    let meaning = if best > told * 100.0 {
        "none of the published tests differs by as much"
    } else {
        "the greatest published difference of a test is as large"
    };
    Some(consequence(
        "background",
        "Pooled NVMe against all-flash behind iSCSI, by the background figures",
        told * 100.0,
        format!(
            "{} or more, {} at most in its tests",
            signed(told * 100.0),
            signed(best)
        ),
        format!(
            "{} us / {} us - 1; {meaning}",
            of.nvme_microseconds, of.iscsi_microseconds
        ),
    ))
}

/// What drives differ by is not what protocols do.
fn drives(article: &Protocols) -> Option<Row> {
    let of = &article.background;
    let ratio = of.nvme_reads / of.sata_reads;
    let gained = article.difference("4k-random-read", 80)?.throughput()?;
    Some(consequence(
        "drives",
        "4K random read: drives against protocols",
        ratio,
        format!(
            "{}x or more between drives, {}x between protocols",
            number(ratio, 2),
            number(gained, 3)
        ),
        format!(
            "{} / {} reads a second; both protocols had the same array, so that nothing of what drives differ by is in the second",
            weir_report::words::grouped(of.nvme_reads as u64),
            weir_report::words::grouped(of.sata_reads as u64)
        ),
    ))
}

/// The most that iSCSI can have carried, if NVMe-oF filled the links.
fn link(article: &Protocols) -> Option<Row> {
    let throughput = article
        .difference("64k-sequential-read", 80)?
        .throughput()?;
    let links = f64::from(article.setup.hosts) * article.setup.link_gigabits;
    let most = links / throughput;
    Some(consequence(
        "link",
        "64K sequential read: iSCSI's maximum, at most",
        most * 1e9,
        format!("{} Gb/s of {}", number(most, 1), number(links, 0)),
        format!(
            "{} hosts x {} Gb/s / {}: NVMe-oF fits into the links; headers not counted, one link a host (assumed); {} of them or more was unused by iSCSI, whose limit was something else",
            article.setup.hosts,
            article.setup.link_gigabits,
            number(throughput, 3),
            percent_text(1.0 - 1.0 / throughput)
        ),
    ))
}

#[cfg(test)]
mod tests;
