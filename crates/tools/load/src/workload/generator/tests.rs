//! Where requests go and what they are, against the distributions that they should have. Every run prints its seed. A bound is
//! passed by chance less than once in 10^9 runs.

use weir_block::{BlockSize, DeallocatedRead};
use weir_reactor::sim::seed_from_env_or_random;

use super::*;
use crate::workload::{NAMED, Operations, SizeShare, parse_sizes};

/// How far a figure may be off, in standard deviations.
const DEVIATIONS: f64 = 6.5;

fn geometry(block_size: BlockSize, blocks: u64) -> Geometry {
    Geometry {
        generation: 0,
        block_size,
        blocks,
        transfer_blocks_max: 1024,
        transfer_blocks_optimal: 1,
        memory_alignment: 1,
        deallocate_blocks: 1,
        deallocated_read: DeallocatedRead::Zeroes,
        volatile_cache: false,
        read_only: false,
        atomic_blocks: 1,
        atomic_blocks_power_fail: 1,
        compare_write_blocks: 1,
    }
}

fn seed() -> u64 {
    let seed = seed_from_env_or_random();
    println!("seed {seed}");
    seed
}

const ALONE: Part = Part {
    queue: 0,
    first: 0,
    queues: 1,
    first_block: 0,
    blocks: u64::MAX,
};

/// One of so many queues that share all blocks.
fn one_of(queue: u32, queues: u32) -> Part {
    Part {
        queue,
        queues,
        ..ALONE
    }
}

fn draw(
    workload: &Workload,
    geometry: &Geometry,
    part: Part,
    seed: u64,
    count: usize,
) -> Vec<Next> {
    workload.check().expect("the workload is sound");
    let mut generator = Generator::new(workload, geometry, part, seed);
    (0..count).map(|_| generator.next()).collect()
}

fn simple(access: Access) -> Workload {
    Workload::simple(4096, 100, access)
}

/// Refuses counts that do not follow from the shares (Pearson's test; Wilson and Hilferty for the bound).
fn assert_follows(counts: &[u64], shares: &[f64], what: &str) {
    assert_eq!(counts.len(), shares.len());
    let total: u64 = counts.iter().sum();
    let whole: f64 = shares.iter().sum();
    let statistic: f64 = counts
        .iter()
        .zip(shares)
        .map(|(&count, share)| {
            let expected = share / whole * total as f64;
            assert!(expected > 5.0, "{what}: too few draws for the test");
            (count as f64 - expected).powi(2) / expected
        })
        .sum();
    let freedom = (counts.len() - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let bound = freedom * (1.0 - spread + DEVIATIONS * spread.sqrt()).powi(3);
    assert!(
        statistic < bound,
        "{what}: {statistic:.1} is beyond {bound:.1} of {freedom} degrees of freedom"
    );
}

fn count_lbas(draws: &[Next], blocks: u64) -> Vec<u64> {
    let mut counts = vec![0; blocks as usize];
    for next in draws {
        counts[next.lba as usize] += 1;
    }
    counts
}

#[test]
fn random_access_is_even() {
    let geometry = geometry(BlockSize::B4096, 64);
    let draws = draw(&simple(Access::Random), &geometry, ALONE, seed(), 100_000);
    assert_follows(&count_lbas(&draws, 64), &[1.0; 64], "random");
}

#[test]
fn ranks_follow_zipfs_law_however_many_there_are() {
    for exponent in [0.5, 0.99, 1.0, 1.1, 2.0, 5.0] {
        for count in [1, 2, 50, 1 << 40] {
            const FIRST: usize = 20;
            const DRAWS: usize = 200_000;
            let mut random = Random::new(seed());
            let zipf = Zipf::new(count, exponent);
            // The first ranks each, and all others together.
            let mut counts = vec![0u64; FIRST + 1];
            for _ in 0..DRAWS {
                let rank = zipf.rank(&mut random);
                assert!(rank < count, "{rank} of {count}");
                counts[(rank as usize).min(FIRST)] += 1;
            }
            let first = (count as usize).min(FIRST);
            let mut shares: Vec<_> = (1..=first)
                .map(|rank| density(rank as u64, exponent))
                .collect();
            let rest = density_of_rest(first as u64, count, exponent);
            counts.truncate(first);
            shares.push(rest);
            counts.push(DRAWS as u64 - counts.iter().sum::<u64>());
            let (counts, shares) = with_enough(&counts, &shares, DRAWS as f64);
            if counts.len() > 1 {
                assert_follows(&counts, &shares, &format!("zipf {exponent} of {count}"));
            }
        }
    }
}

fn density(rank: u64, exponent: f64) -> f64 {
    (rank as f64).powf(-exponent)
}

/// The sum of the densities of ranks above `first`: term by term, and from where that takes too long by the formula of Euler and Maclaurin.
fn density_of_rest(first: u64, count: u64, exponent: f64) -> f64 {
    const EACH: u64 = 1000;
    let direct = count.min(first + EACH);
    let each: f64 = (first + 1..=direct)
        .map(|rank| density(rank, exponent))
        .sum();
    if direct == count {
        return each;
    }
    let antiderivative = |at: f64| match exponent {
        1.0 => at.ln(),
        _ => at.powf(1.0 - exponent) / (1.0 - exponent),
    };
    let (low, high) = (direct as f64, count as f64);
    let edges = (density(count, exponent) - density(direct, exponent)) / 2.0;
    each + antiderivative(high) - antiderivative(low) + edges
}

/// Without the classes that are too rare to be judged.
fn with_enough(counts: &[u64], shares: &[f64], draws: f64) -> (Vec<u64>, Vec<f64>) {
    let whole: f64 = shares.iter().sum();
    let both = counts.iter().zip(shares);
    let (mut enough, mut rare) = (Vec::new(), (0, 0.0));
    for (&count, &share) in both {
        if share / whole * draws > 20.0 {
            enough.push((count, share));
        } else {
            rare = (rare.0 + count, rare.1 + share);
        }
    }
    if rare.1 / whole * draws > 20.0 {
        enough.push(rare);
    }
    enough.into_iter().unzip()
}

#[test]
fn what_zipf_makes_hot_is_spread_and_the_same_for_every_queue() {
    let seed = seed();
    let geometry = geometry(BlockSize::B4096, 1 << 20);
    let hottest = |queue| {
        let part = one_of(queue, 4);
        let draws = draw(
            &simple(Access::Zipf { exponent: 1.2 }),
            &geometry,
            part,
            seed,
            20_000,
        );
        let counts = count_lbas(&draws, 1 << 20);
        let mut order: Vec<_> = (0..counts.len()).collect();
        order.sort_by_key(|&lba| std::cmp::Reverse(counts[lba]));
        order[0]
    };
    let first = hottest(0);
    for queue in 1..4 {
        assert_eq!(hottest(queue), first);
    }
}

#[test]
fn a_pareto_share_gets_what_the_others_do_not() {
    for share in [0.1, 0.2, 0.4] {
        let seed = seed();
        let blocks = 10_000;
        let spread = Shuffle::new(blocks, mix(seed ^ mix(0)));
        let geometry = geometry(BlockSize::B4096, blocks);
        let draws = draw(
            &simple(Access::Pareto { share }),
            &geometry,
            ALONE,
            seed,
            200_000,
        );
        // The ranks of blocks, by the inverse of what spreads them.
        let mut rank_of = vec![0; blocks as usize];
        (0..blocks).for_each(|rank| rank_of[spread.at(rank) as usize] = rank);
        let within = |part: f64| {
            let edge = (part * blocks as f64) as u64;
            draws
                .iter()
                .filter(|next| rank_of[next.lba as usize] < edge)
                .count() as u64
        };
        let (inner, outer) = (within(share * share), within(share));
        let rest = draws.len() as u64 - outer;
        let hot = 1.0 - share;
        assert_follows(
            &[inner, outer - inner, rest],
            &[hot * hot, hot * share, share],
            &format!("pareto {share}"),
        );
    }
}

#[test]
fn hot_areas_get_their_requests_and_no_others() {
    let geometry = geometry(BlockSize::B4096, 1000);
    let access: Access = "hot:50/5,30/15,20/80".parse().expect("it is well formed");
    let draws = draw(&simple(access), &geometry, ALONE, seed(), 100_000);
    let counts = count_lbas(&draws, 1000);
    let of = |from: usize, to: usize| counts[from..to].iter().sum::<u64>();
    assert_follows(
        &[of(0, 50), of(50, 200), of(200, 1000)],
        &[50.0, 30.0, 20.0],
        "areas",
    );
    assert_follows(&counts[..50], &[1.0; 50], "within an area");
}

#[test]
fn kinds_sizes_and_streams_have_their_shares() {
    let stream = |share_percent, bytes: &[(u64, f64)], percents: [f64; 4]| Stream {
        share_percent,
        operations: Operations {
            read_percent: percents[0],
            write_percent: percents[1],
            deallocate_percent: percents[2],
            flush_percent: percents[3],
        },
        sizes: bytes
            .iter()
            .map(|&(bytes, percent)| SizeShare { bytes, percent })
            .collect(),
        align_bytes: None,
        access: Access::Random,
        range_bytes: None,
    };
    let workload = Workload {
        streams: vec![
            stream(80.0, &[(512, 25.0), (1024, 75.0)], [60.0, 30.0, 5.0, 5.0]),
            stream(20.0, &[(2048, 100.0)], [0.0, 100.0, 0.0, 0.0]),
        ],
        ..simple(Access::Random)
    };
    let geometry = geometry(BlockSize::B512, 10_000);
    let draws = draw(&workload, &geometry, ALONE, seed(), 200_000);
    let count = |kind, blocks| {
        let is = |next: &&Next| next.kind == kind && next.blocks == blocks;
        draws.iter().filter(is).count() as u64
    };
    assert_follows(
        &[
            count(Kind::Read, 1),
            count(Kind::Read, 2),
            count(Kind::Write, 1),
            count(Kind::Write, 2),
            count(Kind::Deallocate, 1),
            count(Kind::Deallocate, 2),
            count(Kind::Flush, 0),
            count(Kind::Write, 4),
        ],
        &[12.0, 36.0, 6.0, 18.0, 1.0, 3.0, 4.0, 20.0],
        "kinds, sizes and streams",
    );
}

#[test]
fn sequential_access_visits_every_block_once_in_a_lap_whatever_the_number_of_queues() {
    for queues in [1, 2, 3] {
        let mut seen = vec![0; 96];
        let geometry = geometry(BlockSize::B512, 96);
        for queue in 0..queues {
            let part = one_of(queue, queues);
            let workload = Workload::simple(2048, 100, Access::Sequential);
            let each = 96 / 4 / queues as usize;
            for next in draw(&workload, &geometry, part, 1, 2 * each) {
                seen[next.lba as usize..][..4]
                    .iter_mut()
                    .for_each(|times| *times += 1);
            }
        }
        assert!(seen.iter().all(|&times| times == 2), "{queues}: {seen:?}");
    }
}

#[test]
fn queues_leave_no_whole_request_out_where_they_do_not_divide_the_volume() {
    for (blocks, queues) in [(100, 1), (100, 3), (103, 2), (28, 7), (31, 6)] {
        let geometry = geometry(BlockSize::B512, blocks);
        let mut seen = vec![0; blocks as usize];
        let mut each = Vec::new();
        for queue in 0..queues {
            let part = one_of(queue, queues);
            let workload = Workload::simple(2048, 100, Access::Sequential);
            let (_, of_queue) = part.of(blocks, 4);
            each.push(of_queue / 4);
            for next in draw(&workload, &geometry, part, 1, of_queue as usize / 4) {
                seen[next.lba as usize..][..4]
                    .iter_mut()
                    .for_each(|times| *times += 1);
            }
        }
        let (whole, rest) = seen.split_at((blocks / 4 * 4) as usize);
        assert!(whole.iter().all(|&times| times == 1), "{queues}: {seen:?}");
        assert!(rest.iter().all(|&times| times == 0), "{queues}: {seen:?}");
        let (least, most) = (each.iter().min(), each.iter().max());
        assert!(most <= least.map(|least| least + 1).as_ref(), "{each:?}");
    }
}

#[test]
fn jumps_of_mixed_access_are_aligned_on_the_volume_whatever_the_queue() {
    let geometry = geometry(BlockSize::B512, 1001);
    for queue in 0..3 {
        let mut workload = Workload::simple(512, 100, "random:100".parse().expect("well formed"));
        workload.streams[0].align_bytes = Some(8192);
        let part = one_of(queue, 3);
        let (first, blocks) = part.of(1001, 1);
        let places = first.next_multiple_of(16)..first + blocks;
        let mut counts = vec![0; places.step_by(16).count()];
        for next in draw(&workload, &geometry, part, seed(), 20_000) {
            assert!(next.lba.is_multiple_of(16), "{queue}: {next:?}");
            counts[(next.lba / 16 - first.div_ceil(16)) as usize] += 1;
        }
        let even = vec![1.0; counts.len()];
        assert_follows(&counts, &even, "places");
    }
    // A part without such a place has one all the same.
    let mut workload = Workload::simple(512, 100, "random:50".parse().expect("well formed"));
    workload.streams[0].align_bytes = Some(64 << 10);
    let part = one_of(1, 20);
    let (first, blocks) = part.of(1001, 1);
    for next in draw(&workload, &geometry, part, seed(), 1000) {
        assert!((first..first + blocks).contains(&next.lba), "{next:?}");
    }
}

#[test]
fn deallocations_of_parts_of_a_unit_are_known() {
    let deallocating = |bytes, align: Option<u64>, access: &str| {
        let mut workload = Workload::simple(bytes, 0, access.parse().expect("well formed"));
        let stream = &mut workload.streams[0];
        stream.operations.write_percent = 60.0;
        stream.operations.deallocate_percent = 40.0;
        stream.align_bytes = align;
        workload
    };
    let parts = |workload: &Workload| deallocates_parts(workload, 4096);
    assert!(!parts(&deallocating(8192, None, "random")));
    assert!(!parts(&deallocating(4096, Some(8192), "stride:64k")));
    assert!(parts(&deallocating(512, None, "random")));
    assert!(parts(&deallocating(6144, None, "sequential")));
    assert!(parts(&deallocating(4096, Some(512), "random")));
    assert!(parts(&deallocating(4096, None, "stride:4608")));
    let mut written = deallocating(512, None, "random");
    written.streams[0].operations = Operations::read_write(0.0);
    assert!(!parts(&written));
    // A volume that names no unit deallocates block by block.
    assert!(!deallocates_parts(&deallocating(512, None, "random"), 0));
}

#[test]
fn strides_step_over_what_lies_between_and_come_back_for_it() {
    let geometry = geometry(BlockSize::B512, 32);
    let access = Access::Strided { stride_bytes: 4096 };
    let lbas: Vec<_> = draw(
        &Workload::simple(1024, 100, access),
        &geometry,
        ALONE,
        1,
        17,
    )
    .iter()
    .map(|next| next.lba)
    .collect();
    assert_eq!(
        lbas,
        [0, 8, 16, 24, 2, 10, 18, 26, 4, 12, 20, 28, 6, 14, 22, 30, 0]
    );
}

#[test]
fn mixed_access_jumps_as_often_as_it_should() {
    let geometry = geometry(BlockSize::B4096, 1 << 30);
    let access = Access::Mixed {
        random_percent: 30.0,
    };
    let draws = draw(&simple(access), &geometry, ALONE, seed(), 50_000);
    let jumps = draws
        .windows(2)
        .filter(|pair| pair[1].lba != pair[0].lba + 1)
        .count() as u64;
    assert_follows(
        &[jumps, draws.len() as u64 - 1 - jumps],
        &[30.0, 70.0],
        "jumps",
    );
}

#[test]
fn streams_that_go_on_do_not_follow_each_other_through_the_same_blocks() {
    let mut workload = simple(Access::Sequential);
    workload.streams[0].share_percent = 50.0;
    workload.streams.push(workload.streams[0].clone());
    let geometry = geometry(BlockSize::B4096, 1000);
    let draws = draw(&workload, &geometry, ALONE, seed(), 100);
    let low = draws.iter().filter(|next| next.lba < 500).count();
    assert!(low > 0 && low < 100, "both halves are begun: {low}");
}

/// Any workload of a few parts, sound for volumes of `bytes`.
fn any_workload(random: &mut Random, bytes: u64) -> Workload {
    let accesses = [
        "random",
        "sequential",
        "random:10",
        "stride:256k",
        "zipf:0.8",
        "zipf:1.3",
        "pareto:0.2",
        "hot:50/5,30/15,20/80",
    ];
    let count = random.below(3) + 1;
    let stream = |random: &mut Random| {
        let sizes = [4096, 8192, 12_288, 65_536, 131_072];
        let first = sizes[random.below(5) as usize];
        let second = sizes[random.below(5) as usize];
        Stream {
            share_percent: 100.0 / count as f64,
            operations: Operations {
                read_percent: 40.0,
                write_percent: 40.0,
                deallocate_percent: 10.0,
                flush_percent: 10.0,
            },
            sizes: vec![
                SizeShare {
                    bytes: first,
                    percent: 60.0,
                },
                SizeShare {
                    bytes: second,
                    percent: 40.0,
                },
            ],
            align_bytes: [None, Some(4096), Some(16_384)][random.below(3) as usize],
            access: accesses[random.below(8) as usize]
                .parse()
                .expect("it is well formed"),
            range_bytes: [None, Some(bytes / 2)][random.below(2) as usize],
        }
    };
    Workload {
        streams: (0..count).map(|_| stream(random)).collect(),
        range_bytes: [None, Some(bytes - 4096)][random.below(2) as usize],
        ..simple(Access::Random)
    }
}

#[test]
fn every_request_of_every_workload_lies_within_its_range_and_its_alignment() {
    let seed = seed();
    let mut random = Random::new(seed);
    for round in 0..300 {
        let block_size = [BlockSize::B512, BlockSize::B4096][random.below(2) as usize];
        let shift = block_size.shift();
        let bytes = (2 << 20) + random.below(1 << 20);
        let geometry = geometry(block_size, bytes >> shift);
        let workload = any_workload(&mut random, geometry.length_bytes());
        let queues = random.below(4) as u32 + 1;
        let queue = random.below(u64::from(queues)) as u32;
        let range = range_blocks(&geometry, workload.range_bytes);
        for next in draw(
            &workload,
            &geometry,
            one_of(queue, queues),
            seed ^ round,
            2000,
        ) {
            if next.kind == Kind::Flush {
                assert_eq!((next.lba, next.blocks), (0, 0));
                continue;
            }
            let asked = u64::from(next.blocks) << shift;
            let fits = |stream: &Stream| {
                let unit = stream.align_bytes.unwrap_or(asked) >> shift;
                let free = matches!(
                    stream.access,
                    Access::Sequential | Access::Mixed { .. } | Access::Strided { .. }
                );
                stream.sizes.iter().any(|size| size.bytes == asked)
                    && next.lba + u64::from(next.blocks)
                        <= range.min(range_blocks(&geometry, stream.range_bytes))
                    && (free || next.lba.is_multiple_of(unit))
            };
            assert!(
                workload.streams.iter().any(fits),
                "round {round}: {next:?} is of no stream of {workload:?} on {geometry:?}"
            );
        }
    }
}

#[test]
fn named_workloads_run_on_blocks_of_both_sizes() {
    for block_size in [BlockSize::B512, BlockSize::B4096] {
        let geometry = geometry(block_size, (64 << 20) >> block_size.shift());
        for named in NAMED {
            let workload = named.workload();
            for next in draw(&workload, &geometry, ALONE, seed(), 10_000) {
                assert!(next.blocks > 0, "{}", named.name);
                assert!(
                    next.lba + u64::from(next.blocks) <= geometry.blocks,
                    "{}",
                    named.name
                );
            }
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_requests_and_another_one_others() {
    let geometry = geometry(BlockSize::B4096, 1 << 20);
    let of = |queue, seed| {
        draw(
            &simple(Access::Random),
            &geometry,
            one_of(queue, 2),
            seed,
            100,
        )
    };
    assert_eq!(of(0, 7), of(0, 7));
    assert_ne!(of(0, 7), of(1, 7));
    assert_ne!(of(0, 7), of(0, 8));
}

/// Machines that have blocks of their own: together all, each request wholly of one, and each machine's queues go through all of its part.
#[test]
fn machines_that_are_apart_share_out_the_working_set() {
    let shift = BlockSize::B512.shift();
    let geometry = geometry(BlockSize::B512, 1003);
    for access in ["random", "sequential", "random:50", "stride:12k"] {
        let access: Access = access.parse().expect("well formed");
        let mut workload = Workload::simple(2048, 100, access);
        workload.streams[0].sizes = parse_sizes("2048:50,3072:50").expect("well formed");
        workload.range_bytes = Some(1000 << shift);
        let (machines, queues) = (3, 2);
        let mut edge = 0;
        for machine in 0..machines {
            let own = own_blocks(&workload, &geometry, machine, machines).expect("there is room");
            // Multiples of 4 and of 6 blocks are multiples of 12.
            assert_eq!(own.start, edge);
            assert!(own.start.is_multiple_of(12));
            assert!((own.end - own.start).abs_diff(1000 / 3) <= 12 + 1000 % 12);
            edge = own.end;
            let mut touched = vec![false; 1003];
            for queue in 0..queues {
                let part = Part {
                    queue: machine * queues + queue,
                    first: machine * queues,
                    queues,
                    first_block: own.start,
                    blocks: own.end - own.start,
                };
                for next in draw(&workload, &geometry, part, 7, 3000) {
                    let blocks = next.lba..next.lba + u64::from(next.blocks);
                    assert!(
                        own.start <= blocks.start && blocks.end <= own.end,
                        "{next:?}"
                    );
                    blocks.for_each(|block| touched[block as usize] = true);
                }
            }
            let count = touched.iter().filter(|&&of| of).count() as u64;
            let least = (own.end - own.start) * 9 / 10;
            assert!(
                count >= least,
                "{count} of {own:?}, {}",
                workload.streams[0].access
            );
        }
        assert_eq!(edge, 1000);
    }
}

#[test]
fn what_cannot_be_shared_out_is_refused() {
    let geometry = geometry(BlockSize::B512, 1000);
    let of = |workload: &Workload, machines| own_blocks(workload, &geometry, 1, machines);
    for access in ["zipf:1.1", "pareto:0.2", "hot:80/20,20/80"] {
        let workload = simple(access.parse().expect("well formed"));
        let error = of(&workload, 2).expect_err("it is hot for all").to_string();
        assert!(error.contains(access), "{error}");
        // One machine has everything to itself.
        assert_eq!(own_blocks(&workload, &geometry, 0, 1), Ok(0..1000));
    }
    let mut ranged = simple(Access::Random);
    ranged.streams[0].range_bytes = Some(4096);
    let error = of(&ranged, 2).expect_err("it is a part").to_string();
    assert!(error.contains("4096 bytes"), "{error}");
    let small = of(&simple(Access::Random), 126).expect_err("there are 125 requests");
    assert!(small.to_string().contains("units of 8"), "{small}");
    assert!(of(&simple(Access::Random), 125).is_ok());
}
