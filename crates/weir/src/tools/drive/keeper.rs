//! Keeps a run in a file while it goes on, from a thread of its own: a slow disk holds no drive up.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context;
use weir_drive::course::Current;
use weir_drive::real::KEEP_EVERY;
use weir_drive::{DriveState, State};

use crate::tools::report::put;

/// News that wait to be taken: more than drives tell while the file is written once.
const NEWS_MAX: usize = 64;

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
    sender: Option<mpsc::SyncSender<Keep>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Begins; without an output nothing is kept.
    pub(super) fn start(output: Option<&Path>, state: State) -> anyhow::Result<Self> {
        let file = output.map(kept_beside);
        if let Some(file) = &file {
            write(file, &state)?;
        }
        let (sender, news) = mpsc::sync_channel(NEWS_MAX);
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
            // The thread ends after everything that sends has. A pass that finds no room is told again, with what came after; what all drives are at a
            // pass's end waits, and nothing is written then.
            let _ = match keep {
                Keep::Pass(..) => sender.try_send(keep).is_ok(),
                Keep::All(_) => sender.send(keep).is_ok(),
            };
        }
    }

    /// Keeps what a run that is over came to.
    pub(super) fn keep(&self, state: &State) {
        if let Some(file) = &self.file
            && let Err(error) = write(file, state)
        {
            eprintln!("warning: the run is not kept as it ended: {error:#}");
        }
    }

    /// Nothing is kept any more: the run is over, and its result is stored.
    pub(super) fn remove(&self) {
        if let Some(file) = &self.file
            && let Err(error) = fs::remove_file(file)
        {
            eprintln!("warning: {} cannot be removed: {error}", file.display());
        }
    }

    /// Takes nothing new, and writes no more on its own. Everything that [`Keeper::sink`] gave must be gone.
    pub(super) fn join(&mut self) {
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

/// Writes at the end of a pass, and else at most every [`KEEP_EVERY`].
fn keep(file: Option<&Path>, mut state: State, news: &mpsc::Receiver<Keep>) {
    let (mut told, mut written, mut is_old) = (false, Instant::now(), false);
    loop {
        let new = match is_old {
            true => news.recv_timeout(KEEP_EVERY.saturating_sub(written.elapsed())),
            false => news
                .recv()
                .map_err(|_| mpsc::RecvTimeoutError::Disconnected),
        };
        let mut is_due = false;
        match new {
            Ok(first) => {
                is_old = true;
                is_due = take(&mut state, first);
                while let Ok(next) = news.try_recv() {
                    is_due |= take(&mut state, next);
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        if !is_due && written.elapsed() < KEEP_EVERY {
            continue;
        }
        if let Some(file) = file
            && let Err(error) = write(file, &state)
            && !told
        {
            told = true;
            eprintln!("warning: the run goes on and cannot be kept: {error:#}");
        }
        (written, is_old) = (Instant::now(), false);
    }
}

/// Whether it is to be written now.
fn take(state: &mut State, new: Keep) -> bool {
    match new {
        Keep::Pass(drive, current) => {
            state.drives[drive].current = Some(*current);
            false
        }
        Keep::All(drives) => {
            state.drives = drives;
            true
        }
    }
}

fn write(file: &Path, state: &State) -> anyhow::Result<()> {
    let mut text = Vec::new();
    state.write(&mut text)?;
    put(file, &text)
}
