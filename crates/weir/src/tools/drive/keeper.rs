//! Keeps a run in a file while it goes on, from a thread of its own: a slow disk holds no drive up.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::Context;
use weir_drive::course::Current;
use weir_drive::{DriveState, State};

use crate::tools::report::put;

/// What is new.
pub(super) enum Keep {
    /// The pass of a drive, by its place.
    Pass(usize, Box<Current>),
    /// All drives.
    All(Vec<DriveState>),
}

/// Where a run is kept whose result is to be stored in this file.
pub(super) fn kept_beside(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".kept");
    PathBuf::from(name)
}

/// Reads a run that was kept.
pub(super) fn read(file: &Path) -> anyhow::Result<State> {
    let opened = File::open(file).with_context(|| format!("{}", file.display()))?;
    State::read(BufReader::new(opened)).with_context(|| format!("{}", file.display()))
}

/// Writes what it is told into the file, each time the whole of it.
pub(super) struct Keeper {
    file: Option<PathBuf>,
    sender: Option<mpsc::Sender<Keep>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Begins; without an output nothing is kept.
    pub(super) fn start(output: Option<&Path>, state: State) -> anyhow::Result<Self> {
        let file = output.map(kept_beside);
        if let Some(file) = &file {
            write(file, &state)?;
        }
        let (sender, news) = mpsc::channel();
        let kept = file.clone();
        let thread = std::thread::spawn(move || keep(kept.as_deref(), state, &news));
        Ok(Keeper {
            file,
            sender: Some(sender),
            thread: Some(thread),
        })
    }

    /// What takes news.
    pub(super) fn sink(&self) -> impl Fn(Keep) + Clone + Send + 'static {
        let sender = self
            .sender
            .clone()
            .expect("it is used until it is finished");
        move |keep| {
            // The thread ends after everything that sends has.
            let _ = sender.send(keep);
        }
    }

    /// The run is over: nothing is kept of one that is whole, and all of one that is not.
    pub(super) fn finish(mut self, state: &State) -> anyhow::Result<()> {
        self.join();
        match &self.file {
            Some(file) if state.is_complete() => fs::remove_file(file)
                .with_context(|| format!("{} cannot be removed", file.display())),
            Some(file) => write(file, state),
            None => Ok(()),
        }
    }

    fn join(&mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.join();
    }
}

fn keep(file: Option<&Path>, mut state: State, news: &mpsc::Receiver<Keep>) {
    let mut told = false;
    for new in news {
        match new {
            Keep::Pass(drive, current) => state.drives[drive].current = Some(*current),
            Keep::All(drives) => state.drives = drives,
        }
        let Some(file) = file else {
            continue;
        };
        if let Err(error) = write(file, &state)
            && !told
        {
            told = true;
            eprintln!("warning: the run goes on and cannot be kept: {error:#}");
        }
    }
}

fn write(file: &Path, state: &State) -> anyhow::Result<()> {
    let mut text = Vec::new();
    state.write(&mut text)?;
    put(file, &text)
}
