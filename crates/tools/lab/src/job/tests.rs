//! Job files that are right, and how those that are not are refused.

use proptest::prelude::*;

use super::*;

#[test]
fn a_stream_in_words_is_what_a_job_file_makes_of_it() {
    let said = stream(
        "share=70 read=60 deallocate=2.5 mix=4k:70,64k:30 align=64k access=hot:80/20,20/80 range=1g",
    );
    let text = "[[phase]]\n[[phase.job]]\nvolume = \"null:\"\n[[phase.job.stream]]\nshare = 70\nread = 60\ndeallocate = 2.5\nmix = \"4k:70,64k:30\"\n\
        align = \"64k\"\naccess = \"hot:80/20,20/80\"\nrange = \"1g\"\n[[phase.job.stream]]\nshare = 30\nblock_size = 8192\n";
    let file = JobFile::read("a.toml", text).unwrap();
    let streams = &file.phases[0].jobs[0].workload.streams;
    assert_eq!(said.unwrap(), streams[0]);
    assert_eq!(stream("share=30 block-size=8k").unwrap(), streams[1]);
    for (words, wrong, allowed) in [
        ("share", "'share' is no KEY=VALUE", "share, block_size"),
        ("shares=3", "has no key 'shares'", "share, block_size"),
        ("share=101", "101", "100"),
        ("read=70 write=70", "make 140 percent", "make 100"),
        ("access=anywhere", "anywhere", "zipf"),
        ("mix=4k:1\"\nshare=7", "'mix=4k:1\"'", "such as"),
        ("share=70 share=30", "share is given twice", "once"),
    ] {
        let error = stream(words).unwrap_err();
        assert!(
            error.wrong.contains(wrong) && error.allowed.contains(allowed),
            "{words}: {error}"
        );
    }
}

fn read(text: &str) -> Result<JobFile, JobError> {
    JobFile::read("night.toml", text)
}

#[test]
fn a_job_file_has_phases_and_jobs() {
    let text = r#"
duration = "1m"
seed = 7

[[phase]]
name = "fill"
ramp = 0.5

[[phase.job]]
volume = "file:/data/a"
block_size = "128k"
read = 0
access = "sequential"
queue_depth = 8
duration = 30

[[phase]]

[[phase.job]]
name = "database"
volume = "nvme+tcp://h/nqn?nsid=1"
workload = "sql-90-10"
hosts = 4
queues = 2
rate = 10_000
arrivals = "exponential"
range = "10G"
compress = 50

[[phase.job]]
volume = "mem:?size=1G"
[[phase.job.stream]]
share = 99
read = 80
block_size = "8k"
[[phase.job.stream]]
share = 1
read = 1
mix = "64k:50,128k:50"
access = "random:0.1"
"#;
    let file = read(text).unwrap();
    let [fill, work] = &file.phases[..] else {
        panic!("{file:?}")
    };
    assert_eq!(
        (fill.name.as_str(), work.name.as_str()),
        ("fill", "phase 2")
    );
    let job = &fill.jobs[0];
    assert_eq!((job.name.as_str(), job.volume_line), ("file:/data/a", 10));
    assert_eq!(job.load, Load::Closed { depth: 8 });
    assert_eq!(job.duration, Duration::from_secs(30));
    assert_eq!(job.ramp, Duration::from_millis(500));
    assert_eq!(
        job.workload,
        Workload::simple(128 << 10, 0, Access::Sequential)
    );
    let [database, streams] = &work.jobs[..] else {
        panic!("{work:?}")
    };
    assert_eq!(database.name, "database");
    assert_eq!((database.hosts, database.queues), (4, 2));
    assert_eq!(database.hosts_line, 23);
    assert_eq!(database.duration, Duration::from_secs(60));
    assert_eq!(
        database.load,
        Load::Open {
            rate: 10_000,
            arrivals: Arrivals::Exponential,
            depth_max: 32
        }
    );
    assert_eq!(database.workload.name, Some("sql-90-10"));
    assert_eq!(database.workload.range_bytes, Some(10 << 30));
    assert_eq!(database.workload.compressible_percent, 50);
    let shares: Vec<f64> = streams
        .workload
        .streams
        .iter()
        .map(|stream| stream.share_percent)
        .collect();
    assert_eq!(shares, [99.0, 1.0]);
    assert_eq!(streams.workload.streams[1].sizes.len(), 2);
}

/// Jobs that start from one number would ask for the same blocks at the same times, side by side or one after the other.
#[test]
fn every_job_has_a_seed_of_its_own_unless_it_says_which() {
    let job = "[[phase.job]]\nvolume = \"mem:\"\n";
    let text =
        format!("seed = 5\n[[phase]]\n{job}{job}[[phase]]\nseed = 6\n{job}seed = 5\n{job}{job}");
    let file = read(&text).unwrap();
    let seeds: Vec<u64> = file
        .phases
        .iter()
        .flat_map(|phase| &phase.jobs)
        .map(|job| job.seed)
        .collect();
    assert_eq!((seeds[0], seeds[2]), (5, 5));
    let others: std::collections::BTreeSet<u64> = seeds.iter().copied().collect();
    assert_eq!(others.len(), 4, "{seeds:?}");
    assert_eq!(read(&text).unwrap(), file, "the same file, the same load");
}

#[test]
fn numbers_are_what_they_say_in_whatever_base() {
    let text = job(
        "volume = \"mem:\"\nblock_size = 0x2000\nread = 0o62\nqueue_depth = 0b110\nrange = 0x100_000\nduration = 0x3c",
    );
    let file = read(&text).unwrap();
    let job = &file.phases[0].jobs[0];
    let stream = &job.workload.streams[0];
    assert_eq!(stream.sizes[0].bytes, 8192);
    assert_eq!(stream.operations.read_percent, 50.0);
    assert_eq!(job.load, Load::Closed { depth: 6 });
    assert_eq!(job.workload.range_bytes, Some(1 << 20));
    assert_eq!(job.duration, Duration::from_secs(60));
}

/// 0.1 + 0.2 + 99.7 is above 100 in binary, and is 100 as it is written.
#[test]
fn percentages_are_added_as_they_are_written() {
    for lines in [
        "read = 0.1\nwrite = 0.2\nflush = 99.7",
        "read = 33.3\nwrite = 33.3\ndeallocate = 33.4",
        "read = 99.7\nflush = 0.1\ndeallocate = 0.2",
    ] {
        let file = read(&job(&format!("volume = \"mem:\"\n{lines}"))).expect(lines);
        let percents = file.phases[0].jobs[0].workload.streams[0]
            .operations
            .percents();
        assert!(
            percents.iter().all(|percent| *percent >= 0.0),
            "{percents:?}"
        );
        let sum: f64 = percents.iter().sum();
        assert!((sum - 100.0).abs() < 1e-9, "{sum}");
    }
    let error = read(&job("volume = \"mem:\"\nread = 0.1\nwrite = 0.2")).unwrap_err();
    assert!(error.wrong.contains("make 0.3 percent"), "{error}");
}

#[test]
fn a_job_without_a_name_is_not_called_by_a_secret() {
    let file = read(&job("volume = \"nvme+tcp://h/n?dhchap_secret=abc\"")).unwrap();
    let job = &file.phases[0].jobs[0];
    assert_eq!(job.name, "nvme+tcp://h/n?dhchap_secret=***");
    assert!(job.volume.contains("abc"), "it is what is opened");
}

/// A job with these lines from line 3 on.
fn job(lines: &str) -> String {
    format!("[[phase]]\n[[phase.job]]\n{lines}\n")
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_what_is_allowed() {
    let volume = "volume = \"mem:\"\n";
    let of_job = |lines: &str| job(&format!("{volume}{lines}"));
    let cases = [
        (String::new(), 1, "no phase", "[[phase]]"),
        ("[[phase]]\n".to_owned(), 1, "no job", "[[phase.job]]"),
        ("\n[phase]\n".to_owned(), 2, "a TOML table", "[[phase]]"),
        ("phase = 3\n".to_owned(), 1, "phase is 3", "[[phase]]"),
        ("\n\nx = \n".to_owned(), 3, "not TOML", "key = value"),
        ("a = 1\na = 2\n[[phase]]\n".to_owned(), 2, "not TOML", ""),
        (
            "\ndurations = 3\n".to_owned(),
            2,
            "'durations'",
            "duration, ramp",
        ),
        (job("read = 100"), 2, "no volume", "volume = "),
        (job("volume = 3"), 3, "volume is 3", "text in quotes"),
        (
            of_job("depth = 3"),
            4,
            "a job has no key 'depth'",
            "queue_depth",
        ),
        (
            of_job("queue_depth = 0"),
            4,
            "queue_depth is 0",
            "1 to 65536",
        ),
        (of_job("queue_depth = \"8\""), 4, "'8'", "whole number"),
        (of_job("queues = 5000"), 4, "5000", "1 to 4096"),
        (of_job("read = 101"), 4, "read is 101", "0 to 100"),
        (of_job("\nread = nan"), 5, "read is nan", "0 to 100"),
        (of_job("read = 50\nflush = 60"), 2, "110 percent", "100"),
        (of_job("read = 50\nwrite = 40"), 2, "90 percent", "100"),
        (of_job("block_size = \"4x\""), 4, "'4x'", "16k"),
        (of_job("block_size = 0"), 4, "block_size is 0", "bytes"),
        (of_job("block_size = 512\nmix = \"4k\""), 5, "mix", "leave"),
        (of_job("mix = \"4k,8k\""), 4, "'4k,8k'", "4k:70"),
        (of_job("mix = \"4k:70,8k:20\""), 2, "90 percent", "change"),
        (of_job("access = \"zigzag\""), 4, "'zigzag'", "sequential"),
        (of_job("access = \"zipf:9\""), 4, "is 9", "at most 5"),
        (of_job("workload = \"sql-1\""), 4, "'sql-1'", "sql-90-10"),
        (
            of_job("workload = \"sql\"\nread = 3"),
            5,
            "read does not go",
            "leave",
        ),
        (of_job("duration = \"soon\""), 4, "'soon'", "500ms"),
        (of_job("duration = 0"), 4, "duration is 0", "500ms"),
        (of_job("duration = -1"), 4, "-1", "500ms"),
        (of_job("seed = -1"), 4, "-1", "whole number"),
        (of_job("rate = 0"), 4, "rate is 0", "from 1"),
        (
            of_job("rate = 1\narrivals = \"bursts\""),
            5,
            "'bursts'",
            "exponential",
        ),
        (
            of_job("arrivals = \"uniform\""),
            4,
            "go with a rate",
            "rate",
        ),
        (of_job("stream = 3"), 4, "stream is 3", "[[stream]]"),
        (
            of_job("[[phase.job.stream]]\nshares = 3"),
            5,
            "'shares'",
            "share, ",
        ),
        (
            of_job("[[phase.job.stream]]\nshare = 30"),
            2,
            "30 percent",
            "change",
        ),
        (
            of_job("workload = \"sql\"\n[[phase.job.stream]]"),
            5,
            "by name and streams",
            "leave",
        ),
        (
            of_job("access = \"stride:1k\""),
            2,
            "1024 bytes",
            "longest request",
        ),
    ];
    for (text, line, wrong, allowed) in cases {
        let error = read(&text).expect_err(&text);
        assert_eq!(error.line, line, "{text}\n{error}");
        assert!(error.wrong.contains(wrong), "{text}\n{error}");
        let all = error.to_string();
        assert!(all.contains(allowed), "{text}\n{error}");
        assert!(all.starts_with(&format!("night.toml:{line}: ")), "{all}");
    }
}

proptest! {
    /// No text makes the reader panic, and errors lie within it.
    #[test]
    fn any_text_is_read_or_refused(text in "([a-z_]{1,9}|\\[\\[|\\]\\]|=|\"|[0-9]{1,20}|-|\n| |phase|\\.|job){0,40}") {
        if let Err(error) = read(&text) {
            prop_assert!(error.line <= text.lines().count() + 1, "{}", error);
        }
    }

    /// So too where only values are strange.
    #[test]
    fn any_value_is_read_or_refused(key in prop::sample::select(JOB_KEYS), value in "[0-9a-z:%\\-\"\\[\\]{}.]{1,12}") {
        let text = job(&format!("{key} = {value}"));
        if let Err(error) = read(&text) {
            prop_assert!((1..=4).contains(&error.line), "{}", error);
        }
    }
}
