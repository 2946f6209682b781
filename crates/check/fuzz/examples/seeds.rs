//! Writes the seeds of every target into a folder: `seeds FOLDER`, with a folder for each target in it.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: seeds FOLDER");
        std::process::exit(2);
    };
    for (target, name, data) in weir_fuzz_targets::seeds() {
        let folder = folder.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), data)?;
    }
    Ok(())
}
