//! `--verify` of load: every block that it writes is checked when it is read.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use serde_json::{Value, json};
use weir_block::Volume;
use weir_load::Stop;
use weir_load::verified::{self, ConclusionProgress, Verification, VerifiedError, VerifiedReport};

use super::present::{self, Line, Progress};
use super::session::Session;
use super::verify::finding_json;
use weir_lab::secret::without_in_text;

/// A conclusion that takes longer says what it does, also where no bar is shown.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// What is to be concluded after the load; nothing where nobody asked for it.
pub(crate) struct Checked(Option<(Verification, u64)>);

impl Checked {
    /// Nothing is checked.
    pub(crate) fn nothing() -> Self {
        Checked(None)
    }

    /// Has volumes checked, their first `range` bytes. They are one volume, as several hosts see it. What is wrong asks for `stop`.
    pub(crate) fn wrap(
        session: &Session,
        volumes: &mut Vec<Arc<dyn Volume>>,
        range: Option<u64>,
        stop: &Stop,
    ) -> anyhow::Result<Self> {
        let seed = session.run(|reactor| async move { reactor.random() })?;
        let (wrapped, verification) = verified::wrap(volumes, seed, range, stop)?;
        *volumes = wrapped;
        Ok(Checked(Some((verification, seed))))
    }

    /// Reads everything once more, and says on standard error what is wrong; for JSON, whether something is and what. Null: nobody
    /// asked. `stop` ends that.
    pub(crate) fn conclude(self, session: &Session, stop: &Stop) -> anyhow::Result<Conclusion> {
        let Some((verification, seed)) = self.0 else {
            return Ok(Conclusion {
                sound: true,
                json: Value::Null,
            });
        };
        let progress = Progress::start();
        let mut sink = progress.sink();
        let stop = stop.clone();
        let concluded = session.run(move |control| async move {
            let mut announced = Announced::new();
            let show = |progress: ConclusionProgress| {
                let line = line(&progress);
                announced.hear(&line);
                sink(line);
            };
            verification.conclude(&control, &stop, show).await
        })?;
        drop(progress);
        match concluded {
            Ok(report) => {
                eprintln!("{}", sound(&report));
                let json = json!({
                    "ok": true,
                    "seed": seed,
                    "written_blocks": report.written_blocks,
                    "compared_blocks": report.compared_blocks,
                    "whole": report.whole,
                });
                Ok(Conclusion { sound: true, json })
            }
            Err(VerifiedError::Wrong {
                volume,
                findings,
                requests,
            }) => {
                let volume = without_in_text(&volume);
                eprintln!("weir: {volume} is at fault (seed {seed:#018x}):");
                findings.iter().for_each(|finding| eprintln!("  {finding}"));
                let json = json!({
                    "ok": false,
                    "seed": seed,
                    "fault": findings[0].fault.code(),
                    "wrong_requests": requests,
                    "findings": findings.iter().map(finding_json).collect::<Vec<_>>(),
                });
                Ok(Conclusion { sound: false, json })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// What is said where nothing is wrong.
pub(crate) fn sound(report: &VerifiedReport) -> String {
    let end = match report.whole {
        true => "",
        false => "; reading everything once more was interrupted",
    };
    format!(
        "verified: {} blocks written, {} compared with what was written to them, each as it should be{end}",
        present::grouped(report.written_blocks),
        present::grouped(report.compared_blocks)
    )
}

/// How far a conclusion is.
pub(crate) fn line(progress: &ConclusionProgress) -> Line {
    let what = match progress.searching {
        true => "something is wrong; searching the whole volume for where it went",
        false => "reading everything that was written once more",
    };
    let fraction = progress.block as f64 / progress.blocks.max(1) as f64;
    Line {
        elapsed: progress.elapsed,
        fraction,
        text: format!("{what}: {:.0}%", fraction * 100.0),
    }
}

/// Refuses volumes of which two are the same medium: what is written through one would be wrong for the other.
pub(crate) fn refuse_same_medium(
    session: &Session,
    volumes: Vec<(String, Arc<dyn Volume>)>,
) -> anyhow::Result<()> {
    let (names, volumes): (Vec<_>, Vec<_>) = volumes.into_iter().unzip();
    let same = session
        .run(move |control| async move { verified::same_medium(&control, &volumes).await })??;
    match same {
        None => Ok(()),
        Some((one, other)) => bail!("{}", same_medium(&names[one], &names[other])),
    }
}

/// What is said of two volumes that are one medium.
pub(crate) fn same_medium(one: &str, other: &str) -> String {
    format!(
        "{} and {} are the same medium, and --verify would take what is written through one for a fault of the other; name it once, with more --queues or --hosts",
        without_in_text(one),
        without_in_text(other)
    )
}

/// Says on standard error, before a conclusion that takes longer, what it does, where no bar is shown.
pub(crate) struct Announced(bool);

impl Announced {
    pub(crate) fn new() -> Self {
        Announced(std::io::stderr().is_terminal())
    }

    pub(crate) fn hear(&mut self, line: &Line) {
        if !self.0 && line.elapsed >= TOLD_AFTER {
            self.0 = true;
            eprintln!("{}", line.text);
        }
    }
}

/// What was found in the end.
pub(crate) struct Conclusion {
    /// Whether nothing was wrong.
    pub(crate) sound: bool,
    /// What a program is told of it.
    pub(crate) json: Value,
}
