//! Opening a set: members in any order, checked against their labels; and making one.

use std::sync::Arc;

use weir_block::{DeallocatedRead, Geometry, Operation, ReadBuffers, Volume, VolumeError};
use weir_memory::View;
use weir_reactor::Reactor;

use super::label::{DATA_OFFSET, LABEL_BYTES, Label, MEMBERS_MAX, NoLabel};
use super::{Kind, SetVolume};
use crate::call::Caller;
use crate::url::value_error;
use crate::{OpenError, OpenRequest, UrlError, VolumeUrl, probe};

struct Wanted {
    kind: &'static dyn Kind,
    members: Vec<VolumeUrl>,
    chunk_bytes: Option<u64>,
    create: bool,
    destroy_data: bool,
}

struct Member {
    url: String,
    volume: Arc<dyn Volume>,
    label: Result<Label, NoLabel>,
}

/// Opens the set of this kind that `SCHEME:?member=...&member=...` names.
pub(crate) async fn open(
    kind: &'static dyn Kind,
    request: OpenRequest,
) -> Result<Arc<dyn Volume>, OpenError> {
    let wanted = wanted(kind, &request.url)?;
    let mut members = open_members(&request, &wanted).await?;
    check_block_sizes(&request.url, &members)?;
    let may_create = wanted.create && !request.registry.is_existing_only();
    if may_create && !is_complete(&members, &wanted) {
        create(&request, &wanted, &mut members).await?;
    }
    check_labels(&request.url, &members, &wanted)?;
    members.sort_by_key(|member| member.label.as_ref().map_or(u32::MAX, |label| label.index));
    let labels: Vec<Label> = members
        .iter()
        .filter_map(|member| member.label.as_ref().ok().copied())
        .collect();
    let volumes: Vec<_> = members.into_iter().map(|member| member.volume).collect();
    let geometry = geometry(&volumes, &labels);
    let name = request.url.to_string();
    let layout = kind.layout(&labels);
    Ok(SetVolume::new(name, kind, volumes, layout, geometry))
}

fn wanted(kind: &'static dyn Kind, url: &VolumeUrl) -> Result<Wanted, UrlError> {
    url.expect_no_place()?;
    let parameters = url.parameters();
    let members = parameters.urls("member")?;
    let chunk_bytes = kind.chunk_asked_for(&parameters)?;
    let create = parameters.flag("create")?;
    let destroy_data = parameters.flag("destroy_data")?;
    let some = (!members.is_empty()).then_some(());
    parameters.required(
        "member",
        some,
        "once for each member, a percent-encoded URL",
    )?;
    parameters.finish()?;
    if members.len() > MEMBERS_MAX {
        let allowed = format!("a set has at most {MEMBERS_MAX} members");
        return Err(value_error("member", &members.len().to_string(), allowed));
    }
    Ok(Wanted {
        kind,
        members,
        chunk_bytes,
        create,
        destroy_data,
    })
}

async fn open_members(request: &OpenRequest, wanted: &Wanted) -> Result<Vec<Member>, OpenError> {
    let mut members = Vec::with_capacity(wanted.members.len());
    for (index, url) in wanted.members.iter().enumerate() {
        let volume = request.open_member(index, url).await?;
        let label = read_label(&request.reactor, &volume).await;
        let label = label.map_err(|source| failed(url, "reading its label", source))?;
        members.push(Member {
            url: url.to_string(),
            volume,
            label,
        });
    }
    Ok(members)
}

fn failed(url: &impl ToString, action: &'static str, source: VolumeError) -> OpenError {
    OpenError::Volume {
        url: url.to_string(),
        action,
        source,
    }
}

/// Blocks of a label.
fn label_blocks(volume: &Arc<dyn Volume>) -> u32 {
    (LABEL_BYTES as u32) >> volume.geometry().block_size.shift()
}

async fn read_label(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
) -> Result<Result<Label, NoLabel>, VolumeError> {
    let read = Operation::Read {
        lba: 0,
        blocks: label_blocks(volume),
        buffers: ReadBuffers::Lend,
    };
    if volume.geometry().length_bytes() < LABEL_BYTES as u64 {
        return Ok(Err(NoLabel::Magic));
    }
    let bytes = Caller::open(volume, reactor)?.read(read).await?;
    Ok(Label::decode(&bytes))
}

async fn write_label(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
    label: &Label,
) -> Result<(), VolumeError> {
    let caller = Caller::open(volume, reactor)?;
    let write = Operation::Write {
        lba: 0,
        blocks: label_blocks(volume),
        data: std::iter::once(View::copy_of(&label.encode())).collect(),
        fua: true,
    };
    caller.call(write).await.result?;
    caller.call(Operation::Flush).await.result
}

fn check_block_sizes(url: &VolumeUrl, members: &[Member]) -> Result<(), OpenError> {
    let first = members[0].volume.geometry().block_size;
    let other = members
        .iter()
        .find(|member| member.volume.geometry().block_size != first);
    let Some(other) = other else {
        return Ok(());
    };
    let reason = format!(
        "member {} has blocks of {} bytes, and member {} of {}; they must be the same",
        members[0].url,
        first.bytes(),
        other.url,
        other.volume.geometry().block_size.bytes()
    );
    Err(OpenError::medium(url, reason))
}

/// Whether the members make up a whole set already, as wanted.
fn is_complete(members: &[Member], wanted: &Wanted) -> bool {
    let Ok(first) = &members[0].label else {
        return false;
    };
    let mut seen = vec![false; members.len()];
    let all_of_it = members.iter().all(|member| {
        let label = member.label.as_ref().ok();
        label.is_some_and(|label| {
            let place = seen.get_mut(label.index as usize);
            first.is_same_set(label) && place.is_some_and(|seen| !std::mem::replace(seen, true))
        })
    });
    all_of_it
        && first.scheme == wanted.kind.scheme()
        && first.members as usize == members.len()
        && wanted
            .chunk_bytes
            .is_none_or(|bytes| bytes == first.chunk_bytes)
}

/// Makes a set of the members, in the order of the URL. See [`Label`] for the order of writing.
async fn create(
    request: &OpenRequest,
    wanted: &Wanted,
    members: &mut [Member],
) -> Result<(), OpenError> {
    if request.access.read_only {
        let reason = "a set cannot be made read-only; leave create= out".to_owned();
        return Err(OpenError::medium(&request.url, reason));
    }
    if !wanted.destroy_data {
        refuse_contents(request, wanted.kind, members).await?;
    }
    let kind = wanted.kind;
    let chunk_bytes = wanted.chunk_bytes.unwrap_or(kind.chunk_bytes());
    let data_of = |length: u64| length.saturating_sub(DATA_OFFSET) / chunk_bytes * chunk_bytes;
    let shortest = members
        .iter()
        .min_by_key(|member| member.volume.geometry().length_bytes())
        .expect("a set has members");
    let length = shortest.volume.geometry().length_bytes();
    if data_of(length) == 0 {
        let reason = format!(
            "member {} has {length} bytes; the label's area and one chunk are {}",
            shortest.url,
            DATA_OFFSET + chunk_bytes
        );
        return Err(OpenError::medium(&request.url, reason));
    }
    let mut set = [0; 16];
    request.reactor.system().random_bytes(&mut set);
    let label = Label {
        scheme: kind.scheme(),
        set,
        index: 0,
        members: members.len() as u32,
        block_bytes: members[0].volume.geometry().block_size.bytes(),
        chunk_bytes,
        data_bytes: data_of(length),
        data_offset: DATA_OFFSET,
    };
    let lengths = members.iter().map(|of| of.volume.geometry().length_bytes());
    let used: Vec<u64> = lengths
        .map(|own| data_of(if kind.is_even() { length } else { own }))
        .collect();
    countable(&request.url, used.iter().copied())?;
    for (index, member) in members.iter_mut().enumerate().rev() {
        let label = Label {
            index: index as u32,
            data_bytes: used[index],
            ..label
        };
        let written = write_label(&request.reactor, &member.volume, &label).await;
        written.map_err(|source| failed(&member.url, "writing its label", source))?;
        member.label = Ok(label);
    }
    tracing::info!(volume = %request.url, set = %label.set_name(), "made a set");
    Ok(())
}

async fn refuse_contents(
    request: &OpenRequest,
    kind: &dyn Kind,
    members: &[Member],
) -> Result<(), OpenError> {
    let scheme = kind.scheme();
    let holders = probe::holders_of(&request.reactor, &request.url).await;
    let holders = holders.map_err(|error| {
        let reason = format!(
            "it cannot be told whether something has hold of its members: {error}; a {scheme} is made of them all the same with destroy_data=1"
        );
        OpenError::medium(&request.url, reason)
    })?;
    if !holders.is_empty() {
        let reason = format!(
            "of its members there is something {}; making a {scheme} of them destroys that, with destroy_data=1",
            holders.join("; ")
        );
        return Err(OpenError::medium(&request.url, reason));
    }
    for member in members {
        let found = probe::contents_of(&request.reactor, &member.volume).await;
        let found =
            found.map_err(|source| failed(&member.url, "looking at its contents", source))?;
        if let Some(found) = found {
            let reason = format!(
                "member {} carries {found}; making a {scheme} of it destroys that, with destroy_data=1",
                member.url
            );
            return Err(OpenError::medium(&request.url, reason));
        }
    }
    Ok(())
}

/// Every member is there, once, of one set that is wanted, and long enough.
fn check_labels(url: &VolumeUrl, members: &[Member], wanted: &Wanted) -> Result<(), OpenError> {
    let mut labels = Vec::with_capacity(members.len());
    for member in members {
        match &member.label {
            Ok(label) => labels.push(*label),
            Err(no_label) => {
                let reason = format!(
                    "member {}: {no_label}; create=1 makes a new set",
                    member.url
                );
                return Err(OpenError::medium(url, reason));
            }
        }
    }
    let set = labels[0];
    if set.scheme != wanted.kind.scheme() {
        let reason = format!(
            "member {} belongs to {}; {}: opens that",
            members[0].url,
            set.set_name(),
            set.scheme
        );
        return Err(OpenError::medium(url, reason));
    }
    for (member, label) in members.iter().zip(&labels) {
        if !set.is_same_set(label) {
            let reason = format!(
                "member {} belongs to {}, and member {} to {}",
                members[0].url,
                set.set_name(),
                member.url,
                label.set_name()
            );
            return Err(OpenError::medium(url, reason));
        }
        check_member(url, member, label)?;
    }
    let holders = |index: u32| {
        let of_index = members.iter().zip(&labels);
        let found = of_index.filter(move |(_, label)| label.index == index);
        found
            .map(|(member, _)| member.url.as_str())
            .collect::<Vec<_>>()
    };
    let missing: Vec<_> = (0..set.members)
        .filter(|&index| holders(index).is_empty())
        .map(|index| index.to_string())
        .collect();
    if !missing.is_empty() {
        let reason = format!(
            "{} lacks member {} (of 0 to {})",
            set.set_name(),
            missing.join(", "),
            set.members - 1
        );
        return Err(OpenError::medium(url, reason));
    }
    if let Some(index) = (0..set.members).find(|&index| holders(index).len() > 1) {
        let reason = format!(
            "{} are both member {index} of {}; one is a copy",
            holders(index).join(" and "),
            set.set_name()
        );
        return Err(OpenError::medium(url, reason));
    }
    countable(url, labels.iter().map(|label| label.data_bytes))?;
    if let Some(bytes) = wanted.chunk_bytes.filter(|&bytes| bytes != set.chunk_bytes) {
        let reason = format!("chunk={bytes} is not the chunk of {}", set.set_name());
        return Err(OpenError::medium(url, reason));
    }
    Ok(())
}

/// Refuses more bytes than a number holds.
fn countable(url: &VolumeUrl, mut data: impl Iterator<Item = u64>) -> Result<(), OpenError> {
    let all = data.try_fold(0, u64::checked_add);
    let reason = || "its members have more bytes than can be counted".to_owned();
    all.map(drop)
        .ok_or_else(|| OpenError::medium(url, reason()))
}

fn check_member(url: &VolumeUrl, member: &Member, label: &Label) -> Result<(), OpenError> {
    let geometry = member.volume.geometry();
    if geometry.block_size.bytes() != label.block_bytes {
        let reason = format!(
            "member {} has blocks of {} bytes, and its label says {}; block_size={} in its URL may mend that",
            member.url,
            geometry.block_size.bytes(),
            label.block_bytes,
            label.block_bytes
        );
        return Err(OpenError::medium(url, reason));
    }
    let needed = label.data_offset + label.data_bytes;
    if geometry.length_bytes() < needed {
        let reason = format!(
            "member {} has {} bytes, and {} needs {needed} of it",
            member.url,
            geometry.length_bytes(),
            label.set_name()
        );
        return Err(OpenError::medium(url, reason));
    }
    Ok(())
}

/// What a set is like: what all of its members promise.
fn geometry(members: &[Arc<dyn Volume>], labels: &[Label]) -> Geometry {
    let all: Vec<_> = members.iter().map(|member| member.geometry()).collect();
    let first = all[0];
    let alone = all.len() == 1;
    let smallest = |of: fn(&Geometry) -> u32| all.iter().map(of).min().expect("a set has members");
    let largest = |of: fn(&Geometry) -> u32| all.iter().map(of).max().expect("a set has members");
    // A longer unit than one block may lie across two members.
    let across = |blocks: u32| if alone { blocks } else { blocks.min(1) };
    let deallocates = all.iter().all(|geometry| geometry.deallocate_blocks > 0);
    let zeroes = all
        .iter()
        .all(|geometry| geometry.deallocated_read == DeallocatedRead::Zeroes);
    Geometry {
        generation: 0,
        block_size: first.block_size,
        blocks: labels.iter().map(|label| label.data_bytes).sum::<u64>()
            >> first.block_size.shift(),
        transfer_blocks_max: smallest(|geometry| geometry.transfer_blocks_max),
        transfer_blocks_optimal: largest(|geometry| geometry.transfer_blocks_optimal),
        memory_alignment: largest(|geometry| geometry.memory_alignment),
        deallocate_blocks: if deallocates {
            largest(|geometry| geometry.deallocate_blocks)
        } else {
            0
        },
        deallocated_read: if zeroes {
            DeallocatedRead::Zeroes
        } else {
            DeallocatedRead::Unknown
        },
        volatile_cache: all.iter().any(|geometry| geometry.volatile_cache),
        read_only: all.iter().any(|geometry| geometry.read_only),
        atomic_blocks: across(smallest(|geometry| geometry.atomic_blocks)),
        atomic_blocks_power_fail: across(smallest(|geometry| geometry.atomic_blocks_power_fail)),
        compare_write_blocks: across(smallest(|geometry| geometry.compare_write_blocks)),
    }
}
