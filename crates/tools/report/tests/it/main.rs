//! Reports as others see them: the programs that read what is exported, and a browser.

mod browser;
mod exports;
mod samples;
