//! Tables and progress for people.

use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use weir_block::size::Size;

// Numbers read the same at a terminal and in a report.
pub(crate) use weir_report::words::{between, grouped, latency, rate};

/// Progress is shown as a bar at a terminal. Elsewhere a plain line is written so often.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);
/// What stands before a line beside the bar: `[00:00:00] ` and the bar with a blank.
const BAR_COLUMNS: usize = 36;
/// Parts that a whole run has for the bar.
const BAR_LENGTH: u64 = 1000;

/// How far a tool is.
pub(crate) struct Line {
    pub(crate) elapsed: Duration,
    /// From 0 to 1.
    pub(crate) fraction: f64,
    /// Further lines of it stand below the bar at a terminal, and nowhere else.
    pub(crate) text: String,
}

/// Something to show.
enum Shown {
    Line(Line),
    /// A line that stays, such as a warning.
    Note(String),
}

/// Shows lines on standard error from a thread of its own, so that a slow terminal holds no reactor up.
pub(crate) struct Progress {
    sender: Option<mpsc::Sender<Shown>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn start() -> Self {
        let (sender, lines) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            if std::io::stderr().is_terminal() {
                show_bar(&lines)
            } else {
                show_plain(&lines)
            }
        });
        Progress {
            sender: Some(sender),
            thread: Some(thread),
        }
    }

    /// A function that a tool calls with each line.
    pub(crate) fn sink(&self) -> impl FnMut(Line) + Send + 'static {
        let sender = self.sender();
        move |line| {
            // The display may be gone when the tool is being stopped; the line is then of no use to anyone.
            let _ = sender.send(Shown::Line(line));
        }
    }

    /// A function that a tool calls with a note, which stays above the lines.
    pub(crate) fn notes(&self) -> impl FnMut(String) + Send + 'static {
        let sender = self.sender();
        move |note| {
            let _ = sender.send(Shown::Note(note));
        }
    }

    fn sender(&self) -> mpsc::Sender<Shown> {
        let sender = self.sender.clone();
        sender.expect("a progress display is used until it is finished")
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn show_bar(lines: &mpsc::Receiver<Shown>) {
    let bar = ProgressBar::with_draw_target(Some(BAR_LENGTH), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("[{elapsed_precise}] {bar:24} {msg}")
        .expect("the template is a constant that is well formed");
    bar.set_style(style);
    let terminal = console::Term::stderr();
    for shown in lines {
        let line = match shown {
            Shown::Line(line) => line,
            Shown::Note(note) => {
                bar.suspend(|| eprintln!("{note}"));
                continue;
            }
        };
        bar.set_position((line.fraction.clamp(0.0, 1.0) * BAR_LENGTH as f64) as u64);
        bar.set_message(fitted(&line.text, usize::from(terminal.size().1)));
    }
    bar.finish_and_clear();
}

/// A text of which no line is wider than the terminal; the first stands beside the bar.
fn fitted(text: &str, columns: usize) -> String {
    let lines = text.lines().enumerate().map(|(index, line)| {
        let before = if index == 0 { BAR_COLUMNS } else { 0 };
        let room = columns.saturating_sub(before + 1);
        console::truncate_str(line, room, "…").into_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn show_plain(lines: &mpsc::Receiver<Shown>) {
    let mut next = PLAIN_INTERVAL;
    for shown in lines {
        let line = match shown {
            Shown::Line(line) => line,
            Shown::Note(note) => {
                eprintln!("{note}");
                continue;
            }
        };
        if line.elapsed >= next {
            next = line.elapsed + PLAIN_INTERVAL;
            let first = line.text.lines().next().unwrap_or_default();
            eprintln!("{:>5} s  {first}", line.elapsed.as_secs());
        }
    }
}

/// A volume in one line.
pub(crate) fn volume(of: &weir_lab::document::Volume) -> String {
    let length = Size(of.length_bytes);
    format!(
        "{} ({length}, {}-byte blocks)",
        of.name, of.block_size_bytes
    )
}

/// Rows with aligned columns: the first to the left, the others to the right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let cell = if column == 0 {
                format!("{cell:<width$}")
            } else {
                format!("  {cell:>width$}")
            };
            text.push_str(&cell);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = format!("{}\nrate ▁▂▃\n{}", "a".repeat(60), "b".repeat(90));
        let fitted = fitted(&text, 80);
        let widths: Vec<_> = fitted.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [80 - 1 - BAR_COLUMNS, 8, 79]);
    }

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(
            table(&[row(["a", "10"]), row(["bcd", "9"])]),
            "a    10\nbcd   9\n"
        );
    }
}
