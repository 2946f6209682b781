//! Volumes that lie about one block, and what that is called.

/// A lie, what it is called, and whether reading again finds it still.
pub(crate) const LIES: [(&str, &str, bool); 8] = [
    ("lost-write", "lost-write", true),
    ("torn-write", "torn-write", true),
    ("torn-block", "torn-write", true),
    ("stale-read", "stale-read", false),
    ("misdirected-write", "misdirected-write", true),
    ("misdirected-read", "misdirected-read", false),
    ("bit-flip", "bit-flip", true),
    ("bit-flip-in-read", "bit-flip", false),
];

/// A volume of 256 blocks that lies about the second write to a block. What is misdirected goes to or comes from `to`.
pub(crate) fn lying(lie: &str, block: u64, to: u64) -> String {
    format!("lying:?size=1M&lie={lie}&block={block}&write=2&to={to}")
}
