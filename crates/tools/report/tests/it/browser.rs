//! Reports in a real browser: opened from a file, what is drawn read back and compared with the document, nothing asked of a network.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_lab::document::{Body, Document, Run};
use weir_report::{Format, Source, write};

use crate::samples;
use weir_testing::webdriver::Browser;

/// How far a pixel may be from where it should, by how pixels are written.
const PIXEL: f64 = 0.02;

/// Opens the report of `sources` in a browser and has `check` look at it; the page must have asked for nothing and complained of nothing meanwhile. Where
/// there is no browser this says so.
fn look_at(name: &str, sources: &[Source], check: impl FnOnce(&Browser)) {
    let Some(browser) = Browser::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name).with_extension("html");
    let mut text = Vec::new();
    write(Format::Html, sources, &mut text).expect("a report");
    std::fs::write(&file, text).unwrap();
    browser.resize(1280, 1000);
    browser.open(&file);
    check(&browser);
    check_quiet(&browser, &file);
}

/// Waits until a script returns this: the page learns in its own time what was done. The limit only ends a test that hangs.
fn until(browser: &Browser, script: &str, value: &Value) {
    let began = Instant::now();
    loop {
        let found = browser.run(script);
        if found == *value {
            return;
        }
        let is_over = began.elapsed() > Duration::from_secs(300);
        assert!(!is_over, "{script}: {found} is not {value}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The whole page as a picture beside the built tests, where someone may look at it, in light and in dark.
fn keep_pictures(browser: &Browser, name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let height = browser.run("return document.documentElement.scrollHeight");
    browser.resize(1280, height.as_u64().expect("a height") as u32);
    for scheme in ["dark", "light"] {
        browser.prefer(scheme);
        let picture = browser.picture();
        assert!(picture.len() > 20_000, "a picture with something on it");
        std::fs::write(folder.join(format!("{name}-{scheme}.png")), picture).unwrap();
    }
}

/// No complaint of the page, and no request but for the file itself.
fn check_quiet(browser: &Browser, file: &Path) {
    let said = browser.console();
    assert!(said.is_empty(), "the console says {said:?}");
    let own = format!("file://{}", file.display());
    let asked = browser.requested();
    assert!(asked.contains(&own), "{asked:?}");
    let others: Vec<_> = asked
        .iter()
        .filter(|address| !address.starts_with("file://") && !address.starts_with("data:"))
        .collect();
    assert!(others.is_empty(), "the page asked for {others:?}");
    let foreign = browser
        .run("return document.querySelectorAll('[src], link, a[href], iframe, object').length");
    assert_eq!(foreign, 0, "elements that could fetch something");
}

/// A drawing as it stands in the page: its axes, its series with their points, and where each was drawn.
struct Drawn(Value);

impl Drawn {
    fn of(browser: &Browser, kind: &str, index: usize) -> Drawn {
        let script = format!(
            "const svg = document.querySelectorAll('svg[data-plot=\"{kind}\"]')[{index}];
             const numbers = (at, names) => Object.fromEntries(names.map((name) => [name, Number(at.dataset[name])]));
             const axis = (name) => {{
               const at = svg.querySelector(`g[data-axis=\"${{name}}\"]`);
               return {{kind: at.dataset.kind, ...numbers(at, ['low', 'high', 'from', 'to'])}};
             }};
             return {{
               x: axis('x'), y: svg.querySelector('g[data-axis=\"y\"]') ? axis('y') : null,
               series: [...svg.querySelectorAll('g[data-series]')].map((group) => ({{
                 name: group.dataset.series, choice: group.dataset.choice ?? null, hidden: group.hasAttribute('hidden'),
                 seen: group.getBoundingClientRect().width > 0,
                 points: [...group.querySelectorAll('circle')].map((point) => ({{
                   ...numbers(point, ['x', 'y']), cx: point.cx.baseVal.value, cy: point.cy.baseVal.value,
                   label: point.dataset.label,
                 }})),
                 line: [...group.querySelectorAll('path')].map((path) => path.getAttribute('d')).join(' '),
               }})),
               cells: [...svg.querySelectorAll('rect.cell')].map((cell) => ({{
                 ...numbers(cell, ['from', 'to', 'low', 'high', 'count']), x: cell.x.baseVal.value, y: cell.y.baseVal.value,
                 width: cell.width.baseVal.value, height: cell.height.baseVal.value, opacity: Number(cell.getAttribute('fill-opacity')),
               }})),
               marks: [...svg.querySelectorAll('g[data-mark]')].map((mark) => ({{
                 kind: mark.dataset.mark, value: Number(mark.dataset.value), x: mark.querySelector('line').x1.baseVal.value,
               }})),
               ranges: [...svg.querySelectorAll('g[data-difference]')].map((range) => ({{
                 name: range.dataset.difference, class: range.getAttribute('class'), ...numbers(range, ['low', 'middle', 'high']),
                 x1: range.querySelector('line.range').x1.baseVal.value, x2: range.querySelector('line.range').x2.baseVal.value,
               }})),
             }};"
        );
        let drawn = Drawn(browser.run(&script));
        drawn.check_places();
        drawn
    }

    /// Where the axis has a value, by its own ends.
    fn pixel(&self, axis: &str, value: f64) -> f64 {
        let axis = &self.0[axis];
        let [low, high, from, to] =
            ["low", "high", "from", "to"].map(|name| axis[name].as_f64().unwrap());
        let part = match axis["kind"].as_str().unwrap() {
            "linear" => (value - low) / (high - low),
            "logarithmic" => (value.max(low) / low).log10() / (high / low).log10(),
            other => panic!("an axis of kind {other}"),
        };
        from + part.clamp(0.0, 1.0) * (to - from)
    }

    /// Every point lies where its values are, and its line goes through it.
    fn check_places(&self) {
        for series in self.0["series"].as_array().unwrap() {
            let line = series["line"].as_str().unwrap();
            for point in series["points"].as_array().unwrap() {
                let of = |name: &str| point[name].as_f64().unwrap();
                let place = (self.pixel("x", of("x")), self.pixel("y", of("y")));
                assert!(
                    (of("cx") - place.0).abs() < PIXEL,
                    "{point} should be at {place:?}"
                );
                assert!(
                    (of("cy") - place.1).abs() < PIXEL,
                    "{point} should be at {place:?}"
                );
                assert!(
                    of("y") >= self.0["y"]["low"].as_f64().unwrap() * 0.999
                        && of("y") <= self.0["y"]["high"].as_f64().unwrap() * 1.001,
                    "{point} is outside its axis"
                );
                let step = format!("{} {}", trimmed(of("cx")), trimmed(of("cy")));
                assert!(
                    line.is_empty() || line.contains(&step),
                    "no {step} in {line}"
                );
            }
        }
    }

    /// The points of the series of this name and statistic.
    fn points(&self, name: &str, choice: Option<&str>) -> Vec<(f64, f64)> {
        let series = self.0["series"].as_array().unwrap();
        let found = series
            .iter()
            .find(|series| series["name"] == name && series["choice"].as_str() == choice)
            .unwrap_or_else(|| panic!("no series {name} {choice:?}"));
        let points = found["points"].as_array().unwrap();
        let of = |point: &Value, name: &str| point[name].as_f64().unwrap();
        points
            .iter()
            .map(|point| (of(point, "x"), of(point, "y")))
            .collect()
    }

    /// The names of the series that can be seen.
    fn seen(&self) -> Vec<String> {
        let series = self.0["series"].as_array().unwrap();
        let seen = series
            .iter()
            .filter(|series| series["seen"] == true && series["hidden"] == false);
        seen.map(|series| match series["choice"].as_str() {
            Some(choice) => format!("{} {choice}", series["name"].as_str().unwrap()),
            None => series["name"].as_str().unwrap().to_owned(),
        })
        .collect()
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn only_run(document: &Document) -> &Run {
    document.runs()[0]
}

/// What a statistic by the name that the page gives it is of a run's intervals, with the middle of each.
fn over_time(run: &Run, statistic: &str) -> Vec<(f64, f64)> {
    run.intervals
        .iter()
        .map(|interval| {
            let operations = &interval.operations;
            let latency = operations
                .response()
                .unwrap()
                .or(operations.service().unwrap())
                .unwrap();
            (
                interval.start_seconds + interval.length_seconds / 2.0,
                of(&latency, statistic),
            )
        })
        .collect()
}

fn of(latency: &weir_lab::document::Latency, statistic: &str) -> f64 {
    match statistic {
        "mean" => latency.mean_ns,
        "max" => latency.max_ns as f64,
        percentile => {
            let percentile = percentile[1..].parse().unwrap();
            latency.percentile_ns(percentile).unwrap() as f64
        }
    }
}

const STATISTICS: [&str; 5] = ["mean", "p50", "p99", "p99.9", "max"];

fn check_load(browser: &Browser, source: &Source) {
    let run = only_run(&source.document);
    let drawn = Drawn::of(browser, "latency-over-time", 0);
    for statistic in STATISTICS {
        assert_eq!(
            drawn.points(statistic, None),
            over_time(run, statistic),
            "{statistic}"
        );
    }
    let rates = Drawn::of(browser, "throughput-over-time", 0);
    let reads: Vec<_> = run
        .intervals
        .iter()
        .map(|interval| {
            let rate = interval.operations.read.requests as f64 / interval.length_seconds;
            (interval.start_seconds + interval.length_seconds / 2.0, rate)
        })
        .collect();
    assert_eq!(rates.points("read", None), reads);
    check_heat(browser, run);
    let distribution = Drawn::of(browser, "distribution", 0);
    let latency = run.operations.read.felt().unwrap();
    let points = distribution.points("line-0", None);
    assert_eq!(points.last().unwrap().0, latency.count as f64);
    let longest = points.last().unwrap().1;
    assert!((longest - latency.max_ns as f64).abs() / longest < 0.01);
}

/// The cells of a time hold all its requests, and lie where they say.
fn check_heat(browser: &Browser, run: &Run) {
    let drawn = Drawn::of(browser, "heat", 0);
    let cells = drawn.0["cells"].as_array().unwrap();
    for interval in &run.intervals {
        let here: Vec<_> = cells
            .iter()
            .filter(|cell| cell["from"].as_f64().unwrap() == interval.start_seconds)
            .collect();
        let count: u64 = here
            .iter()
            .map(|cell| cell["count"].as_f64().unwrap() as u64)
            .sum();
        assert_eq!(
            count,
            interval.operations.requests(),
            "at {}",
            interval.start_seconds
        );
        let latency = interval
            .operations
            .response()
            .unwrap()
            .or(interval.operations.service().unwrap());
        let longest = latency.unwrap().max_ns as f64;
        let top = here
            .iter()
            .map(|cell| cell["high"].as_f64().unwrap())
            .fold(0.0, f64::max);
        assert!(
            top >= longest * 0.999 && top < longest * 2.0,
            "{top} and {longest}"
        );
    }
    let most = cells
        .iter()
        .map(|cell| cell["count"].as_f64().unwrap())
        .fold(0.0, f64::max);
    for cell in cells {
        let of = |name: &str| cell[name].as_f64().unwrap();
        assert!(
            (of("x") - drawn.pixel("x", of("from"))).abs() < PIXEL,
            "{cell}"
        );
        assert!(
            (of("y") - drawn.pixel("y", of("high"))).abs() < PIXEL,
            "{cell}"
        );
        let height = drawn.pixel("y", of("low")) - drawn.pixel("y", of("high"));
        assert!(
            (of("height") - height.max(0.5)).abs() < 2.0 * PIXEL,
            "{cell}"
        );
        let strength = of("count").ln_1p() / most.ln_1p();
        assert!(
            (of("opacity") - (0.1 + 0.9 * strength)).abs() < 0.001,
            "{cell}"
        );
    }
}

/// What the page says, as a reader copies it.
fn words(browser: &Browser) -> String {
    let text = browser.run("document.querySelectorAll('details').forEach((at) => at.open = true); return document.body.innerText");
    text.as_str().unwrap().to_owned()
}

#[test]
fn a_load_is_drawn_as_it_was_measured() {
    let source = samples::closed_bench("closed", 1, 90_000.0);
    look_at("load", std::slice::from_ref(&source), |browser| {
        check_load(browser, &source);
        keep_pictures(browser, "load");

        // Hostile text of a document stands in the page as text.
        let text = words(browser);
        let caveat = &source.document.caveats[0];
        assert!(text.contains(&caveat.text), "the caveat");
        assert!(
            text.contains("'file:/srv/images/disk 1' --read-percent 70"),
            "the command"
        );
        for said in [
            "Example Processor 9000 <8-core>",
            "6.1.0-example",
            "tsc",
            "2026-01-31T12:00:00Z",
            "a=\"<b>\"",
        ] {
            assert!(text.contains(said), "{said}");
        }
        // The tables have the numbers of the drawings.
        let rows = browser.run(
            "return document.querySelectorAll('figure.over-time table')[0].tBodies[0].rows.length",
        );
        assert_eq!(rows, 30);
    });
}

#[test]
fn a_load_with_a_rate_keeps_its_two_times_apart() {
    let source = samples::open_bench("open");
    look_at("open", std::slice::from_ref(&source), |browser| {
        check_load(browser, &source);
        let drawn = Drawn::of(browser, "latency-over-time", 0);
        let run = only_run(&source.document);
        let service: Vec<f64> = run
            .intervals
            .iter()
            .map(|interval| interval.operations.service().unwrap().unwrap().max_ns as f64)
            .collect();
        let points = drawn.points("max service", None);
        assert_eq!(
            points.iter().map(|point| point.1).collect::<Vec<_>>(),
            service
        );
        assert_ne!(points, drawn.points("max", None));
        keep_pictures(browser, "open");
    });
}

#[test]
fn a_curve_is_drawn_with_its_knee() {
    let source = samples::curve("curve", 10_000.0);
    look_at("curve", std::slice::from_ref(&source), |browser| {
        let Body::Curve { curves, .. } = &source.document.body else {
            unreachable!("it is a curve")
        };
        let drawn = Drawn::of(browser, "latency-against-throughput", 0);
        assert_eq!(drawn.0["y"]["kind"], "logarithmic");
        for statistic in STATISTICS {
            let expected: Vec<_> = curves[0]
                .points
                .iter()
                .map(|point| {
                    (
                        point.run.rate(),
                        of(&point.run.felt().unwrap().unwrap(), statistic),
                    )
                })
                .collect();
            assert_eq!(drawn.points(statistic, None), expected, "{statistic}");
        }
        let marks = drawn.0["marks"].as_array().unwrap();
        let knee = curves[0].knee.unwrap();
        assert_eq!(marks[0]["kind"], "knee");
        assert_eq!(marks[0]["value"].as_f64().unwrap(), knee.rate);
        assert!((marks[0]["x"].as_f64().unwrap() - drawn.pixel("x", knee.rate)).abs() < PIXEL);
        assert_eq!(marks[1]["kind"], "objective");
        assert_eq!(
            marks[1]["value"].as_f64().unwrap(),
            curves[0].objectives[0].rate.unwrap()
        );

        // A series can be switched off, and on again.
        assert_eq!(drawn.seen(), STATISTICS);
        let button = "#latency-against-throughput button[data-series=\"p99\"]";
        browser.click(button);
        let without: Vec<_> = STATISTICS
            .into_iter()
            .filter(|name| *name != "p99")
            .collect();
        assert_eq!(
            Drawn::of(browser, "latency-against-throughput", 0).seen(),
            without
        );
        browser.click(button);
        assert_eq!(
            Drawn::of(browser, "latency-against-throughput", 0).seen(),
            STATISTICS
        );
        keep_pictures(browser, "curve");
        let text = words(browser);
        let past = curves[0].past_saturation.as_ref().unwrap();
        assert!(
            text.contains(&past.text)
                && text.contains("p99<2ms")
                && text.contains("generator was up to 64.00 ms late is left out"),
            "{text}"
        );
    });
}

#[test]
fn a_comparison_is_drawn_with_its_intervals() {
    let source = samples::comparison("comparison");
    look_at("comparison", std::slice::from_ref(&source), |browser| {
        let Body::Comparison(comparison) = &source.document.body else {
            unreachable!("it is a comparison")
        };
        for (index, stage) in comparison.stages.iter().enumerate() {
            let drawn = Drawn::of(browser, "differences", index);
            let ranges = drawn.0["ranges"].as_array().unwrap();
            assert_eq!(ranges.len(), stage.differences.len());
            for (range, difference) in ranges.iter().zip(&stage.differences) {
                let of = |name: &str| range[name].as_f64().unwrap();
                assert_eq!(range["name"], format!("B: {}", difference.metric.name()));
                let said = (of("low"), of("middle"), of("high"));
                assert_eq!(
                    said,
                    (
                        difference.percent_low,
                        difference.percent,
                        difference.percent_high
                    )
                );
                assert!((of("x1") - drawn.pixel("x", difference.percent_low)).abs() < PIXEL);
                assert!((of("x2") - drawn.pixel("x", difference.percent_high)).abs() < PIXEL);
            }
            let classes: Vec<_> = ranges
                .iter()
                .map(|range| range["class"].as_str().unwrap())
                .collect();
            assert_eq!(classes, ["good", "good", "neither"]);
            let rounds = Drawn::of(browser, "throughput-by-round", index);
            for side in 0..2 {
                let expected: Vec<_> = stage
                    .rounds
                    .iter()
                    .enumerate()
                    .map(|(round, of)| (round as f64 + 1.0, of.runs[side].rate()))
                    .collect();
                assert_eq!(rounds.points(&format!("subject-{side}"), None), expected);
            }
        }
        keep_pictures(browser, "comparison");
        assert!(words(browser).contains(&comparison.summary));
    });
}

#[test]
fn several_results_stand_in_one_picture() {
    let mut sources = vec![
        samples::curve("gateway", 10_000.0),
        samples::curve("peer", 8_000.0),
        samples::closed_bench("single", 5, 300_000.0),
        samples::closed_bench("again", 6, 340_000.0),
    ];
    sources[1].document.machine.kernel = "6.12.0-other".to_owned();
    look_at("several", &sources, |browser| {
        let drawn = Drawn::of(browser, "latency-against-throughput", 0);
        assert_eq!(
            drawn.seen(),
            [
                "subject-0 p99",
                "subject-1 p99",
                "subject-2 p99",
                "subject-3 p99"
            ]
        );
        browser.click("#latency-against-throughput button[data-choice=\"p50\"]");
        let drawn = Drawn::of(browser, "latency-against-throughput", 0);
        assert_eq!(
            drawn.seen(),
            [
                "subject-0 p50",
                "subject-1 p50",
                "subject-2 p50",
                "subject-3 p50"
            ]
        );
        let run = only_run(&sources[2].document);
        let p50 = of(&run.felt().unwrap().unwrap(), "p50");
        assert_eq!(drawn.points("subject-2", Some("p50")), [(run.rate(), p50)]);
        // One that is switched off stays so when another statistic is chosen.
        browser.click("#latency-against-throughput button[data-series=\"subject-1\"]");
        browser.click("#latency-against-throughput button[data-choice=\"max\"]");
        let drawn = Drawn::of(browser, "latency-against-throughput", 0);
        assert_eq!(
            drawn.seen(),
            ["subject-0 max", "subject-2 max", "subject-3 max"]
        );
        // Loads are over their time together, and what differs between the results is said.
        let loads = Drawn::of(browser, "latency-over-time", 0);
        let again = only_run(&sources[3].document);
        assert_eq!(
            loads.points("subject-1", Some("p99")),
            over_time(again, "p99")
        );
        let said = browser.run(
            "return [...document.querySelectorAll('[data-caveat]')].map((at) => at.dataset.caveat)",
        );
        let said = said.to_string();
        assert!(
            said.contains("machines-differ") && said.contains("volatile-cache"),
            "{said}"
        );
        keep_pictures(browser, "several");
    });
}

#[test]
fn the_pointer_is_told_what_lies_under_it_and_the_page_turns_dark() {
    let source = samples::curve("curve", 10_000.0);
    look_at("pointer", std::slice::from_ref(&source), |browser| {
        let hidden = "return document.querySelector('.hover').hidden";
        assert_eq!(browser.run(hidden), true);
        let place = browser.run(
            "const point = [...document.querySelector('svg').querySelectorAll('.point')].at(-2);
         point.scrollIntoView({block: 'center'});
         const box = point.getBoundingClientRect();
         return [box.x + box.width / 2 + 3, box.y + box.height / 2 + 3, point.dataset.label]",
        );
        browser.point_at(place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
        until(browser, hidden, &false.into());
        assert_eq!(
            browser.run("return document.querySelector('.hover').textContent"),
            place[2]
        );
        assert!(
            place[2].as_str().unwrap().contains("per second"),
            "{}",
            place[2]
        );
        browser.point_at(2.0, 2.0);
        until(browser, hidden, &true.into());

        let ground = "return getComputedStyle(document.body).backgroundColor";
        browser.prefer("light");
        let light = browser.run(ground);
        browser.prefer("dark");
        let dark = browser.run(ground);
        assert_ne!(light, dark);
        browser.click("#theme");
        until(browser, ground, &light);
        browser.prefer("light");
        browser.click("#theme");
        until(browser, ground, &dark);

        // On a narrow screen nothing but drawings and tables is wider than the page.
        browser.resize(400, 800);
        let wide = browser.run("return document.documentElement.scrollWidth");
        assert!(
            wide.as_u64().unwrap() <= 400,
            "the page is {wide} pixels wide"
        );
    });
}

/// A drive with a cache, of which three passes were made: two phases, one, and a burst.
fn qualified() -> weir_drive::Document {
    use weir_drive::config::Config;
    use weir_drive::course::Current;
    use weir_drive::document::{Health, PassKind, Sample};
    use weir_drive::{DriveState, Identity};
    let current = |pass, rates: &[(usize, u64)]| {
        let samples: Vec<_> = rates
            .iter()
            .flat_map(|&(count, bytes)| {
                let sample = move |index: usize| Sample {
                    seconds: 1.0,
                    bytes: bytes + index as u64 % 3 * (bytes / 100),
                    nanoseconds_longest: 1_000_000 + index as u64 * 1000,
                    nanoseconds_gap: Some(50_000 + index as u64 * 1000),
                };
                (0..count).map(sample)
            })
            .collect();
        let bytes = samples.iter().map(|of: &Sample| of.bytes).sum();
        Current {
            position_bytes: bytes,
            samples,
            ..Current::new(pass, bytes)
        }
    };
    let config = Config {
        passes: vec![PassKind::Fill, PassKind::Overwrite, PassKind::Recovery],
        ..Config::default()
    };
    let identity = Identity {
        url: "file:/dev/a?token=<b>".to_owned(),
        capacity_bytes: 1_000_000_000_000,
        block_size_bytes: 4096,
    };
    let mut state = DriveState::new(identity, "file:/dev/<a>".to_owned(), 900_000_000_000);
    state.put(
        &config,
        current(PassKind::Fill, &[(40, 2_700_000_000), (480, 1_600_000_000)]),
    );
    state.put(
        &config,
        current(PassKind::Overwrite, &[(560, 1_600_000_000)]),
    );
    let mut burst = current(
        PassKind::Recovery,
        &[(20, 2_700_000_000), (60, 1_600_000_000)],
    );
    burst.idled_nanoseconds = Some(60_000_000_000);
    state.put(&config, burst);
    state.health_before = Some(Health {
        percentage_used: Some(1.5),
        critical_warning: Some(0b100),
        ..Health::default()
    });
    state.health_unknown = vec!["the log <C0h> is not there".to_owned()];
    state.identified_as = vec!["A <Drive>, firmware 1".to_owned()];
    let drive = state.drive(&config);
    let state = weir_drive::State::new(config, "2026-01-31T12:00:00Z".to_owned(), vec![state]);
    weir_drive::Document {
        caveats: state.caveats(),
        started: state.started,
        ..weir_drive::Document::new(vec![drive])
    }
}

#[test]
fn drives_are_drawn_as_they_were_measured() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("drive.html");
    let document = qualified();
    let mut text = Vec::new();
    weir_report::write_drives(&document, &mut text).expect("a report");
    let page = String::from_utf8_lossy(&text);
    for part in [
        "Unknown: the log &lt;C0h&gt; is not there",
        "The drive calls itself A &lt;Drive&gt;, firmware 1",
        "its reliability is degraded",
    ] {
        assert!(page.contains(part), "no '{part}' in the page");
    }
    std::fs::write(&file, text).unwrap();
    browser.resize(1280, 1000);
    browser.open(&file);
    let drive = &document.drives[0];
    let (rates, longest) = (
        Drawn::of(&browser, "rate-over-bytes", 0),
        Drawn::of(&browser, "longest-over-bytes", 0),
    );
    let windows = Drawn::of(&browser, "worst-window", 0);
    let (mut written, mut marks) = (0, Vec::new());
    for pass in &drive.passes {
        let name = pass.pass.name();
        let points = rates.points(name, None);
        // Samples that are drawn as one keep their bytes and their time, and the longest of their writes.
        let together = pass.samples.len().div_ceil(400);
        let mut before = written as f64;
        assert_eq!(
            points.len(),
            pass.samples.len().div_ceil(together),
            "{name}"
        );
        let stalls = longest.points(name, None);
        for (place, samples) in pass.samples.chunks(together).enumerate() {
            let bytes: u64 = samples.iter().map(|of| of.bytes).sum();
            let seconds: f64 = samples.iter().map(|of| of.seconds).sum();
            let (x, y) = points[place];
            assert!(
                (x - before - bytes as f64 / 2.0).abs() < 1.0,
                "{name} {place}: {x}"
            );
            assert!(
                (y - bytes as f64 / seconds).abs() < 1.0,
                "{name} {place}: {y}"
            );
            let worst = samples
                .iter()
                .map(|of| of.nanoseconds_longest)
                .max()
                .unwrap();
            assert_eq!(stalls[place].1, worst as f64);
            before += bytes as f64;
        }
        let expected: Vec<_> = pass
            .worst_windows
            .iter()
            .map(|of| (of.seconds, of.bytes_per_second))
            .collect();
        assert_eq!(windows.points(name, None), expected, "{name}");
        marks.extend(pass.phases.iter().enumerate().map(|(index, phase)| {
            let kind = if index == 0 { "pass" } else { "change" };
            (kind.to_owned(), (written + phase.begins_at_bytes) as f64)
        }));
        written += pass.bytes();
    }
    assert_eq!(marks.len(), 5, "two phases, one, and two");
    let drawn: Vec<_> = rates.0["marks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mark| {
            (
                mark["kind"].as_str().unwrap().to_owned(),
                mark["value"].as_f64().unwrap(),
            )
        })
        .collect();
    assert_eq!(drawn, marks);
    for mark in rates.0["marks"].as_array().unwrap() {
        let place = rates.pixel("x", mark["value"].as_f64().unwrap());
        assert!(
            (mark["x"].as_f64().unwrap() - place).abs() < PIXEL,
            "{mark}"
        );
    }
    assert_eq!(rates.seen(), ["fill", "overwrite", "recovery", "phases"]);
    browser.click("figure button[data-series='overwrite']");
    assert_eq!(
        Drawn::of(&browser, "rate-over-bytes", 0).seen(),
        ["fill", "recovery", "phases"]
    );
    browser.click("figure button[data-series='overwrite']");
    let text = browser.run("return document.body.innerText");
    let text = text.as_str().unwrap();
    for part in [
        "file:/dev/<a>",
        "unknown",
        "cache",
        "1.5%",
        "part-of-the-drive",
        "Longest gap between completions",
        "Slowest write",
    ] {
        assert!(text.contains(part), "no {part} on the page");
    }
    keep_pictures(&browser, "drive");
    check_quiet(&browser, &file);
}
