//! `--verify` of load: every block that it writes is checked when it is read.

use std::sync::Arc;

use serde_json::{Value, json};
use weir_block::Volume;
use weir_load::verified::{self, Verification, VerifiedError};

use super::present;
use super::session::Session;
use super::verify::finding_json;

/// What is to be concluded after the load; nothing where nobody asked for it.
pub(crate) struct Checked(Option<(Verification, u64)>);

impl Checked {
    /// Has volumes checked where `wanted`, their first `range` bytes. They are one volume, as several hosts see it.
    pub(crate) fn wrap(
        session: &Session,
        volumes: &mut Vec<Arc<dyn Volume>>,
        range: Option<u64>,
        wanted: bool,
    ) -> anyhow::Result<Self> {
        if !wanted {
            return Ok(Checked(None));
        }
        let seed = session.run(|reactor| async move { reactor.random() })?;
        let (wrapped, verification) = verified::wrap(volumes, seed, range, &session.stop)?;
        *volumes = wrapped;
        Ok(Checked(Some((verification, seed))))
    }

    /// Reads everything once more, and says on standard error what is wrong; for JSON, whether something is and what. Null: nobody
    /// asked.
    pub(crate) fn conclude(self, session: &Session) -> anyhow::Result<Conclusion> {
        let Some((verification, seed)) = self.0 else {
            return Ok(Conclusion {
                sound: true,
                json: Value::Null,
            });
        };
        let concluded =
            session.run(move |control| async move { verification.conclude(&control).await })?;
        match concluded {
            Ok(report) => {
                eprintln!(
                    "verified: {} blocks written, {} compared with what was written to them, each as it should be",
                    present::grouped(report.written_blocks),
                    present::grouped(report.compared_blocks)
                );
                let json = json!({
                    "ok": true,
                    "seed": seed,
                    "written_blocks": report.written_blocks,
                    "compared_blocks": report.compared_blocks,
                });
                Ok(Conclusion { sound: true, json })
            }
            Err(VerifiedError::Wrong {
                volume,
                findings,
                requests,
            }) => {
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

/// What was found in the end.
pub(crate) struct Conclusion {
    /// Whether nothing was wrong.
    pub(crate) sound: bool,
    /// What a program is told of it.
    pub(crate) json: Value,
}
