//! Runs one input through its target: `run TARGET FILE`.

fn main() {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [name, file] = &arguments[..] else {
        eprintln!("usage: run TARGET FILE");
        std::process::exit(2);
    };
    let target = weir_fuzz_targets::TARGETS
        .iter()
        .find(|(known, _)| name == *known);
    let Some((_, target)) = target else {
        let known: Vec<_> = weir_fuzz_targets::TARGETS
            .iter()
            .map(|(name, _)| name)
            .collect();
        eprintln!("the targets are {known:?}");
        std::process::exit(2);
    };
    let data = std::fs::read(file).expect("a file that can be read");
    target(&data);
}
