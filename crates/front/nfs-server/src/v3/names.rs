//! Procedures on names.

use weir_files::{Changes, Creation, Found, Kind};
use weir_nfs::Status;
use weir_nfs::attribute::AttributeChanges;
use weir_nfs::types::share;
use weir_nfs::v3::{HowCreated, Place, Procedure};
use weir_reactor::LocalFile;

use super::{Procedures, changes};
use crate::actions::Changed;
use crate::handle::FileKey;

/// Attributes that a file is made with. Its owner is the gateway's user, whom else a client thinks of.
fn changes_of_new(asked: AttributeChanges) -> Result<Changes, Status> {
    changes(AttributeChanges {
        owner: None,
        group: None,
        ..asked
    })
}

impl Procedures<'_> {
    pub(super) async fn look_up(&mut self, place: &Place<'_>) -> Result<(), Status> {
        let directory = self.key(place.directory)?;
        let found = match place.name {
            b"." => None,
            b".." => self.seen.parent_of(&directory).await?,
            name => Some(self.seen.look_up(&directory, name).await?),
        };
        let attributes = self.attributes(&directory).await?;
        let found = found.unwrap_or(Found {
            id: directory.id,
            attributes,
        });
        if place.name == b"." && attributes.kind != Kind::Directory {
            return Err(Status::Notdir);
        }
        let key = FileKey {
            id: found.id,
            ..directory
        };
        self.out.opaque(self.handle(&key).bytes());
        self.tell(&key, Some(&found.attributes));
        self.tell(&directory, Some(&attributes));
        Ok(())
    }

    /// Writes what became of a file that was to be made.
    fn tell_made(&mut self, directory: &FileKey, found: &Found, changed: &Changed) {
        let key = FileKey {
            id: found.id,
            ..*directory
        };
        self.out.bool(true);
        self.out.opaque(self.handle(&key).bytes());
        self.tell(&key, Some(&found.attributes));
        self.tell_changed(directory, changed);
    }

    pub(super) async fn create(
        &mut self,
        place: &Place<'_>,
        how: HowCreated,
    ) -> Result<(), Status> {
        let directory = self.key(place.directory)?;
        let (creation, asked) = match how {
            HowCreated::Unchecked(asked) => (Creation::Unchecked, asked),
            HowCreated::Guarded(asked) => (Creation::Guarded, asked),
            HowCreated::Exclusive(verifier) => {
                (Creation::Exclusive(verifier), AttributeChanges::default())
            }
        };
        let changes = changes_of_new(asked)?;
        let made = self.seen.create(directory, place.name, creation, changes);
        let made = made.await?;
        let mut found = made.created.found;
        let key = FileKey {
            id: found.id,
            ..directory
        };
        if found.attributes.kind != Kind::Regular {
            return Err(Status::Exist);
        }
        if let Some(file) = made.created.made {
            let (file, now) = (LocalFile::new(file), self.seen.now());
            let mut files = self.seen.context.files.borrow_mut();
            files.keep(key, file, true, now);
        }
        if let Some(size) = made.size {
            let state = &self.seen.shared().state;
            state.check_unowned(&key, share::WRITE, self.seen.now())?;
            let size = Changes {
                size: Some(size),
                ..Changes::default()
            };
            let set = self.seen.on(self.seen.export(&key)?, move |files| {
                files.set(&key.id, &size)?;
                files.attributes(&key.id)
            });
            found.attributes = set.await?;
        }
        self.tell_made(&directory, &found, &made.changed);
        Ok(())
    }

    pub(super) async fn make(
        &mut self,
        place: &Place<'_>,
        kind: u32,
        link: &[u8],
        asked: AttributeChanges,
    ) -> Result<(), Status> {
        let directory = self.key(place.directory)?;
        let changes = Changes {
            size: None,
            ..changes_of_new(asked)?
        };
        let made = self.seen.make(directory, place.name, kind, link, changes);
        let (found, changed) = made.await?;
        self.tell_made(&directory, &found, &changed);
        Ok(())
    }

    pub(super) async fn remove(&mut self, place: &Place<'_>) -> Result<(), Status> {
        let directory = self.key(place.directory)?;
        let of_directory = Some(self.procedure == Procedure::Rmdir);
        let removed = self.seen.remove(directory, place.name, of_directory);
        let changed = removed.await?;
        self.tell_changed(&directory, &changed);
        Ok(())
    }

    pub(super) async fn rename(&mut self, from: &Place<'_>, to: &Place<'_>) -> Result<(), Status> {
        let (source, target) = (self.key(from.directory)?, self.key(to.directory)?);
        let renamed = self.seen.rename((source, from.name), (target, to.name));
        let (of_source, of_target) = renamed.await?;
        self.tell_changed(&source, &of_source);
        self.tell_changed(&target, &of_target);
        Ok(())
    }

    pub(super) async fn link(&mut self, file: FileKey, place: &Place<'_>) -> Result<(), Status> {
        let directory = self.key(place.directory)?;
        let changed = self.seen.link(file, directory, place.name).await?;
        let attributes = self.attributes(&file).await.ok();
        self.tell(&file, attributes.as_ref());
        self.tell_changed(&directory, &changed);
        Ok(())
    }
}
