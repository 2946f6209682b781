//! Tables: the same numbers as the drawings, for those who read rather than look.

use maud::{Markup, html};
use weir_lab::document::{Latency, LatencyError};

use crate::measured::Measured;
use crate::words;
use crate::{ReportError, Source};

/// Percentiles that the summary shows.
const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

/// A table that is shown on request.
pub(super) fn behind(summary: &str, table: Markup) -> Markup {
    html! {
        details {
            summary { (summary) }
            (table)
        }
    }
}

/// A table with a name for each row.
pub(super) fn table(caption: &str, heading: &[String], rows: &[Vec<String>]) -> Markup {
    html! {
        div.wide {
            table {
                caption { (caption) }
                thead { tr { @for cell in heading { th scope="col" { (cell) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (column, cell) in row.iter().enumerate() {
                                @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Of each run, each kind of request.
pub(super) fn summary(runs: &[&Measured<'_>]) -> Result<Markup, ReportError> {
    let several = runs.len() > 1;
    let mut rows = Vec::new();
    for of in runs {
        rows.extend(summary_rows(of).map_err(of.failed())?);
    }
    let mut heading: Vec<String> = Vec::new();
    if several {
        heading.push("Run".to_owned());
    }
    heading.extend(
        [
            "Requests",
            "Number",
            "Per second",
            "Bytes",
            "Latency",
            "Mean",
            "Min",
        ]
        .map(str::to_owned),
    );
    heading.extend(PERCENTILES.map(|percentile| format!("p{percentile}")));
    heading.extend(["Max", "Failed"].map(str::to_owned));
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(run, row)| match several {
            true => [vec![run], row].concat(),
            false => row,
        })
        .collect();
    let caption =
        "Response time is from when a request was due, service time from when it was issued.";
    Ok(html! { div.summary { (table(caption, &heading, &rows)) } })
}

fn summary_rows(of: &Measured<'_>) -> Result<Vec<(String, Vec<String>)>, LatencyError> {
    let operations = &of.run.operations;
    let seconds = of.run.elapsed_seconds.max(f64::MIN_POSITIVE);
    let mut rows = Vec::new();
    let mut push =
        |name: &str, counted: [u64; 3], rates: [f64; 2], times: [(&str, Option<&Latency>); 2]| {
            for (time, latency) in times {
                let Some(latency) = latency else { continue };
                let mut row = vec![
                    name.to_owned(),
                    words::grouped(counted[0]),
                    words::per_second(rates[0]),
                    words::rate(rates[1]),
                    time.to_owned(),
                    words::latency(latency.mean_ns),
                    words::latency(latency.min_ns as f64),
                ];
                for percentile in PERCENTILES {
                    row.push(words::latency(latency.percentile_ns(percentile)? as f64));
                }
                row.push(words::latency(latency.max_ns as f64));
                row.push(words::grouped(counted[2]));
                rows.push((of.label.clone(), row));
            }
            Ok(())
        };
    let kinds: Vec<_> = operations
        .each()
        .into_iter()
        .filter(|(_, operation)| !operation.is_nothing())
        .collect();
    for (name, operation) in &kinds {
        push(
            name,
            [operation.requests, operation.bytes, operation.errors],
            [
                operation.requests as f64 / seconds,
                operation.bytes as f64 / seconds,
            ],
            [
                ("response", operation.response.as_ref()),
                ("service", operation.service.as_ref()),
            ],
        )?;
    }
    if kinds.len() > 1 {
        let (response, service) = (operations.response()?, operations.service()?);
        push(
            "all",
            [
                operations.requests(),
                operations.bytes(),
                operations.errors(),
            ],
            [of.run.rate(), of.run.bytes_per_second()],
            [
                ("response", response.as_ref()),
                ("service", service.as_ref()),
            ],
        )?;
    }
    if of.run.volumes.len() > 1 {
        for volume in &of.run.volumes {
            let Some(part) = &volume.operations else {
                continue;
            };
            let (response, service) = (part.response()?, part.service()?);
            push(
                &volume.name,
                [part.requests(), part.bytes(), part.errors()],
                [
                    part.requests() as f64 / seconds,
                    part.bytes() as f64 / seconds,
                ],
                [
                    ("response", response.as_ref()),
                    ("service", service.as_ref()),
                ],
            )?;
        }
    }
    Ok(rows)
}

/// The documents of a report that has several.
pub(super) fn sources(sources: &[Source]) -> Markup {
    let rows: Vec<Vec<String>> = sources
        .iter()
        .map(|source| {
            let document = &source.document;
            let volumes = super::details::volumes(document);
            let urls: Vec<_> = volumes.iter().map(|volume| volume.url.as_str()).collect();
            vec![
                source.name.clone(),
                super::page::kind(document).to_owned(),
                urls.join(", "),
                document.started.clone(),
                document.version.clone(),
            ]
        })
        .collect();
    let heading = ["Result", "Kind", "Volumes", "Measured", "Weir"].map(str::to_owned);
    table("The results that are shown together", &heading, &rows)
}
