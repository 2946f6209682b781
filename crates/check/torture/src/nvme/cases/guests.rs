//! What a gateway under our control is given for one case, and what is taken away again afterwards, however the case ends.

use crate::case::Failure;
use crate::nvme::context::Context;

/// A namespace of the suite's subsystem that is there for one case.
pub(super) struct Guest {
    /// The volume's name.
    pub(super) volume: &'static str,
    /// NSID.
    pub(super) nsid: u32,
}

/// NSIDs of guests: far from those of the target's own.
pub(super) const GUEST_NSID: u32 = 901;

impl Guest {
    /// A volume of this URL as a namespace.
    ///
    /// # Errors
    /// The gateway cannot have it.
    pub(super) fn arrive(
        context: &mut Context,
        volume: &'static str,
        url: &str,
    ) -> Result<Self, Failure> {
        let guest = Guest {
            volume,
            nsid: GUEST_NSID,
        };
        context.weir(&["volume", "add", volume, url])?;
        let added = guest.serve(context);
        if added.is_err() {
            guest.leave(context)?;
        }
        added.map(|()| guest)
    }

    /// Serves the volume as its namespace.
    pub(super) fn serve(&self, context: &mut Context) -> Result<(), Failure> {
        let subsystem = context.target.subsystem.to_string();
        let nsid = self.nsid.to_string();
        context
            .weir(&["namespace", "add", &subsystem, self.volume, "--nsid", &nsid])
            .map(drop)
    }

    /// Takes the namespace away; the volume stays.
    pub(super) fn retire(&self, context: &mut Context) -> Result<(), Failure> {
        let subsystem = context.target.subsystem.to_string();
        let nsid = self.nsid.to_string();
        context
            .weir(&["namespace", "remove", &subsystem, &nsid])
            .map(drop)
    }

    /// Takes all of it away.
    pub(super) fn leave(&self, context: &mut Context) -> Result<(), Failure> {
        // The case may have taken the namespace away itself.
        let _ = self.retire(context);
        context.weir(&["volume", "remove", self.volume]).map(drop)
    }
}

/// Does `work` with a guest, who leaves afterwards in any case.
pub(super) fn with_guest<R>(
    context: &mut Context,
    volume: &'static str,
    url: &str,
    work: impl FnOnce(&mut Context, &Guest) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let guest = Guest::arrive(context, volume, url)?;
    let result = work(context, &guest);
    let left = guest.leave(context);
    let result = result?;
    left.map(|()| result)
}

/// A subsystem of its own with one namespace, there for one case.
pub(super) struct Annex {
    /// Its NQN.
    pub(super) nqn: &'static str,
    /// The volume's name.
    pub(super) volume: &'static str,
}

impl Annex {
    /// A subsystem that any host may use, with a volume of this URL as namespace 1.
    ///
    /// # Errors
    /// The gateway cannot have it.
    pub(super) fn arrive(
        context: &mut Context,
        nqn: &'static str,
        volume: &'static str,
        url: &str,
    ) -> Result<Self, Failure> {
        let annex = Annex { nqn, volume };
        context.weir(&["volume", "add", volume, url])?;
        let steps: [&[&str]; 2] = [
            &["subsystem", "add", nqn, "--allow-any-host"],
            &["namespace", "add", nqn, volume, "--nsid", "1"],
        ];
        for step in steps {
            if let Err(failure) = context.weir(step) {
                annex.leave(context)?;
                return Err(failure);
            }
        }
        Ok(annex)
    }

    /// Takes all of it away.
    pub(super) fn leave(&self, context: &mut Context) -> Result<(), Failure> {
        // The case may have taken the subsystem away itself.
        let _ = context.weir(&["subsystem", "remove", self.nqn, "--force"]);
        context.weir(&["volume", "remove", self.volume]).map(drop)
    }
}
