//! Hosts that begin all kinds of commands and break off anywhere, while what they work on comes, goes and changes (group 30).
//!
//! What each command ends with is left open here: the case sees to it that the target says nothing that is no answer, that nobody else
//! notices, and that nothing is left behind.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_nvme::command::{
    Abort, AdminCommand, Blocks, CopyCommand, CopyRange, DatasetManagement, DatasetManagementRange,
    FabricsCommand, NvmCommand, PropertySet, PropertySize, WriteZeroes,
};
use weir_nvme::property::Property;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::sqe::Fuse;
use weir_nvme::{HostId, Nqn, Sqe};

use super::guests::with_guest;
use super::hosts::{nvm, read_sqe, write_sqe};
use crate::case::Failure;
use crate::connection::Manner;
use crate::nvme::context::Context;
use crate::nvme::peer::Got;
use crate::nvme::queue::{Controller, Queue, QueueOptions, enabled};

cases! {
    30 hosts_and_changes_at_once [GATEWAY] "NVMe Base 2.0c 3.2.1, 3.3.2.4; NVMe/TCP Transport 1.0c 3.5"
        : "three hosts that send commands of every kind and break off anywhere, and a namespace that goes, comes back, shrinks, grows and is protected meanwhile" => "answers, or the end of a connection that its host ended; nothing left behind";
}

/// How long the hosts go on.
const DURATION: Duration = Duration::from_millis(2500);
const HOSTS: u64 = 3;
/// What the hosts do is decided by this: the same each time, but for its timing.
const SEED: u64 = 0x7e57_1e55;
const BLOCK: u32 = 512;
/// Commands that are begun together at most.
const COMMANDS_MAX: u64 = 12;
/// How long a host looks for answers before it goes on.
const GLANCE: Duration = Duration::from_millis(8);

/// xorshift64*: enough for choices.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

/// One of the hosts.
struct Unruly {
    address: SocketAddr,
    manner: Manner,
    options: QueueOptions,
    nsid: u32,
    dice: Dice,
}

fn hosts_and_changes_at_once(context: &mut Context) -> Result<(), Failure> {
    let url = "mem:?size=4M&block_size=512";
    with_guest(context, "torture-turmoil", url, |context, guest| {
        let hosts = (1..=HOSTS).map(|number| unruly(context, guest.nsid, number));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads: Vec<_> = hosts
                .into_iter()
                .map(|mut host| {
                    let stop = &stop;
                    scope.spawn(move || host.go_on(stop))
                })
                .collect();
            let changed = change(context, guest);
            stop.store(true, Ordering::SeqCst);
            let went_on = threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("a host does not panic"));
            changed.and(went_on)
        })
    })
}

/// Changes the guest in every way until the time is over.
fn change(context: &mut Context, guest: &super::guests::Guest) -> Result<(), Failure> {
    let subsystem = context.target.subsystem.to_string();
    let nsid = guest.nsid.to_string();
    let began = Instant::now();
    while began.elapsed() < DURATION {
        context.weir(&["volume", "resize", guest.volume, "1M", "--force"])?;
        context.weir(&["namespace", "set", &subsystem, &nsid, "--read-only", "on"])?;
        guest.retire(context)?;
        guest.serve(context)?;
        context.weir(&["volume", "resize", guest.volume, "4M"])?;
    }
    Ok(())
}

fn unruly(context: &Context, nsid: u32, number: u64) -> Result<Unruly, Failure> {
    let name = format!("nqn.2026-01.com.example:torture-unruly-{number}");
    let host_nqn = Nqn::new(&name).map_err(|error| Failure::preparation(&name, error))?;
    Ok(Unruly {
        address: context.target.address,
        manner: context.manner,
        options: QueueOptions {
            host_nqn,
            host_id: HostId([0x80 + number as u8; 16]),
            in_capsule_bytes: context.facts.in_capsule_bytes,
            ..context.options()
        },
        nsid,
        dice: Dice(SEED + number),
    })
}

impl Unruly {
    fn go_on(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        while !stop.load(Ordering::SeqCst) {
            let mut controller = Controller::bring_up(self.address, &self.options, self.manner)?;
            let mut io = controller.io_with(1, &self.options)?;
            for _ in 0..self.dice.below(4) {
                self.begin(&mut io)?;
                if self.dice.below(3) == 0 {
                    self.abort(&mut controller.admin)?;
                }
                self.glance(&mut io)?;
                self.glance(&mut controller.admin)?;
            }
            self.end(controller, io)?;
        }
        Ok(())
    }

    /// Sends several commands at once, perhaps not all of their bytes.
    fn begin(&mut self, io: &mut Queue) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        for _ in 0..=self.dice.below(COMMANDS_MAX) {
            let (sqe, data, reads) = self.command();
            let (_, capsule) = io.prepare(sqe, &data, reads);
            bytes.extend(capsule);
        }
        let cut = self.dice.below(8) == 0;
        let end = if cut {
            self.dice.below(bytes.len() as u64) as usize
        } else {
            bytes.len()
        };
        io.send(&bytes[..end])?;
        if cut {
            // What is left over comes after a while: the connection stays whole.
            std::thread::sleep(GLANCE);
            io.send(&bytes[end..])?;
        }
        Ok(())
    }

    fn command(&mut self) -> (Sqe, Vec<u8>, u32) {
        let blocks = 1 + self.dice.below(64) as u32;
        // Some of it lies behind the end of the namespace when it is small.
        let lba = self.dice.below(8192 + 16);
        let (nsid, bytes) = (self.nsid, blocks * BLOCK);
        let data = vec![self.dice.below(256) as u8; bytes as usize];
        let range = Blocks::new(lba, blocks);
        match self.dice.below(9) {
            0 | 1 => (read_sqe(nsid, lba, blocks), Vec::new(), bytes),
            2 | 3 => (write_sqe(nsid, lba, blocks), data, 0),
            4 => {
                let mut sqe = nvm(NvmCommand::Compare(range), nsid);
                sqe.fuse = Fuse::First;
                (sqe, data, 0)
            }
            5 => {
                let mut sqe = write_sqe(nsid, lba, blocks);
                sqe.fuse = Fuse::Second;
                (sqe, data, 0)
            }
            6 => {
                let zeroes = WriteZeroes {
                    lba,
                    blocks,
                    deallocate: self.dice.below(2) == 0,
                    ..WriteZeroes::default()
                };
                (nvm(NvmCommand::WriteZeroes(zeroes), nsid), Vec::new(), 0)
            }
            7 => {
                let command = DatasetManagement {
                    ranges: 1,
                    deallocate: true,
                    ..DatasetManagement::default()
                };
                let range = DatasetManagementRange {
                    lba,
                    blocks,
                    ..DatasetManagementRange::default()
                };
                let sqe = nvm(NvmCommand::DatasetManagement(command), nsid);
                (sqe, range.encode().to_vec(), 0)
            }
            _ => {
                let command = CopyCommand {
                    destination_lba: self.dice.below(4096),
                    ranges: 1,
                    ..CopyCommand::default()
                };
                let source = CopyRange::new(lba, blocks).encode().to_vec();
                (nvm(NvmCommand::Copy(command), nsid), source, 0)
            }
        }
    }

    /// Asks for the end of some command of the I/O queue.
    fn abort(&mut self, admin: &mut Queue) -> Result<(), Failure> {
        let cid = self.dice.below(COMMANDS_MAX * 2) as u16;
        let sqe = AdminCommand::Abort(Abort { sqid: 1, cid }).sqe(0, SglDescriptor::NONE);
        let (_, capsule) = admin.prepare(sqe, &[], 0);
        admin.send(&capsule)
    }

    /// Takes what has come; some of the data that is asked for is sent.
    fn glance(&mut self, queue: &mut Queue) -> Result<(), Failure> {
        loop {
            match queue.receive_within(GLANCE) {
                Got::Response(_) | Got::Data(..) => {}
                Got::R2t(r2t) if self.dice.below(3) > 0 => {
                    let data = vec![0x33; r2t.offset as usize + r2t.length as usize];
                    queue.send_data(&r2t, &data)?;
                }
                Got::R2t(_) => {}
                Got::Nothing(_) => return Ok(()),
                got => {
                    let expected = "answers, and requests for data";
                    return Err(Failure::differs("an unruly host", expected, got));
                }
            }
        }
    }

    /// Ends it all, in one of many ways.
    fn end(&mut self, mut controller: Controller, mut io: Queue) -> Result<(), Failure> {
        match self.dice.below(6) {
            0 => io.into_peer().reset(),
            1 => controller.admin.into_peer().reset(),
            2 => {
                io.into_peer().reset();
                controller.admin.into_peer().reset();
            }
            3 => {
                let disconnect = FabricsCommand::Disconnect { record_format: 0 };
                let sqe = disconnect.sqe(0, SglDescriptor::NONE);
                let (_, capsule) = io.prepare(sqe, &[], 0);
                io.send(&capsule)?;
            }
            4 => {
                let set = FabricsCommand::PropertySet(PropertySet {
                    size: PropertySize::FourBytes,
                    offset: Property::Configuration.value(),
                    value: enabled().with_enabled(false).0.into(),
                });
                let sqe = set.sqe(0, SglDescriptor::NONE);
                let (_, capsule) = controller.admin.prepare(sqe, &[], 0);
                controller.admin.send(&capsule)?;
                self.glance(&mut controller.admin)?;
            }
            _ => {}
        }
        Ok(())
    }
}
