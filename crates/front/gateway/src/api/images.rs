//! `/v1/images` and `/v1/trash`: images in the pools of Ceph clusters, whether the gateway serves them or not.
//!
//! Each call is a client of the cluster of its own. Nothing is kept here: what images there are, the cluster knows. An image that a
//! volume of the gateway is made of is not deleted under it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use weir_rbd::{CephError, Credentials, ImageName, Images, NewImage, Options as ImageOptions};
use weir_volume::VolumeUrl;

use super::input::{Body, Names, Options, SizeInput};
use super::{ApiError, Context, Refusals, Shared, added};
use crate::kinds::images_below;
use crate::name::VolumeName;

/// How long a call waits for the cluster.
const CLUSTER_TIME_MAX: Duration = Duration::from_secs(90);
/// Calls that wait for one cluster at the same time, those included for which nobody waits any more.
const CALLS_MAX: usize = 8;
/// The same of all clusters.
const CALLS_OF_ALL_MAX: usize = 32;
/// Where Ceph's tools look for the cluster's configuration, where nobody says otherwise.
const CONF: &str = "/etc/ceph/ceph.conf";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room for the calls that wait for clusters.
#[derive(Default)]
pub(super) struct Calls(Arc<Mutex<HashMap<String, usize>>>);

/// One call's room; there again when it is dropped.
struct Place {
    calls: Arc<Mutex<HashMap<String, usize>>>,
    conf: String,
}

impl Calls {
    /// Room for a call to the cluster of this configuration file, or why there is none: a cluster that answers nothing takes none of the
    /// others'.
    fn place(&self, conf: &str) -> Result<Place, String> {
        let mut calls = lock(&self.0);
        let of_one = calls.get(conf).copied().unwrap_or(0);
        if of_one >= CALLS_MAX {
            return Err(format!(
                "{CALLS_MAX} calls wait for the cluster of {conf} already"
            ));
        }
        if calls.values().sum::<usize>() >= CALLS_OF_ALL_MAX {
            return Err(format!(
                "{CALLS_OF_ALL_MAX} calls wait for clusters already"
            ));
        }
        calls.insert(conf.to_owned(), of_one + 1);
        Ok(Place {
            calls: Arc::clone(&self.0),
            conf: conf.to_owned(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut calls = lock(&self.calls);
        match calls.get_mut(&self.conf) {
            Some(of_one) if *of_one > 1 => *of_one -= 1,
            _ => drop(calls.remove(&self.conf)),
        }
    }
}

/// Which cluster, as whom, and where in the pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Cluster {
    /// The namespace in the pool.
    #[serde(default)]
    namespace: String,
    /// The cluster's configuration file, on the gateway's machine; otherwise the one that Ceph's tools read.
    conf: Option<String>,
    /// The client's name, without `client.`; otherwise admin.
    id: Option<String>,
    /// The file with the client's key, on the gateway's machine; otherwise where the configuration says.
    keyring: Option<String>,
}

/// What a new image should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageSpec {
    /// Its size.
    pub size: SizeInput,
    /// The size of its objects, a power of two from 4 KiB to 32 MiB; otherwise as the cluster has it (4 MiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_size: Option<SizeInput>,
    /// A pool for its data; otherwise the pool that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_pool: Option<String>,
}

/// The size that an image should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageResize {
    /// The new size.
    pub size: SizeInput,
    /// Whether to destroy what lies behind a smaller end.
    #[serde(default)]
    pub force: bool,
}

/// What is to be made of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneSpec {
    /// The pool of the new image, in the same cluster.
    pub pool: String,
    /// The namespace in that pool.
    #[serde(default)]
    pub namespace: String,
    /// The new image's name.
    pub name: String,
}

/// What an image from the trash is to be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreSpec {
    /// Its name.
    pub name: String,
}

/// An image among others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageSummary {
    /// Its name.
    pub name: String,
    /// The gateway's volumes that are made of it or of a snapshot of it.
    pub volumes: Vec<VolumeName>,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageView {
    /// Its pool.
    pub pool: String,
    /// Its namespace in the pool; empty for that without a name.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The size of its objects in bytes.
    pub object_bytes: u64,
    /// The address of the client that holds its lock, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_by: Option<String>,
    /// Its snapshots, from the oldest on.
    pub snapshots: Vec<SnapshotView>,
    /// The gateway's volumes that are made of it or of a snapshot of it.
    pub volumes: Vec<VolumeName>,
}

/// A snapshot of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotView {
    /// Its name.
    pub name: String,
    /// The image's size then, in bytes.
    pub size_bytes: u64,
}

/// An image in the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrashedView {
    /// What it is known by there.
    pub id: String,
    /// The name that it had.
    pub name: String,
    /// Before this time, in seconds since the Unix epoch, Ceph does not delete it without force.
    pub kept_until: i64,
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid", message)
}

impl Cluster {
    fn credentials(&self) -> Result<Credentials, ApiError> {
        let id = self.id.as_deref().unwrap_or("admin");
        if id.is_empty() || id.starts_with("client.") {
            return Err(invalid(
                "id is the client's name without 'client.', such as admin",
            ));
        }
        Ok(Credentials {
            conf: self.conf.clone(),
            id: id.to_owned(),
            keyring: self.keyring.clone(),
        })
    }

    /// The name of an image there, or of a snapshot.
    fn image(
        &self,
        pool: &str,
        image: &str,
        snapshot: Option<&str>,
    ) -> Result<ImageName, ApiError> {
        let asked = ImageName {
            pool: pool.to_owned(),
            namespace: self.namespace.clone(),
            image: image.to_owned(),
            snapshot: snapshot.map(str::to_owned),
        };
        let text = asked.to_string();
        match ImageName::parse(&text) {
            Some(name) if name == asked => Ok(name),
            _ => Err(invalid(format!(
                "{text} is no name of an image: it is {}",
                ImageName::FORM
            ))),
        }
    }
}

/// A volume of the gateway that is made of an image.
struct User {
    volume: VolumeName,
    /// Whether it is made of more, so that its size is another.
    part: bool,
    snapshot: Option<String>,
}

/// The configuration file that is meant, so that two names of one are the same.
fn conf(given: Option<&str>) -> PathBuf {
    let usual = || std::env::var("CEPH_CONF").unwrap_or_else(|_| CONF.to_owned());
    let path = PathBuf::from(given.map_or_else(usual, str::to_owned));
    path.canonicalize().unwrap_or(path)
}

/// The gateway's volumes that are made of images of this pool and namespace, with the name of the image.
fn users_in(context: &Context, cluster: &Cluster, pool: &str) -> Vec<(String, User)> {
    let asked = conf(cluster.conf.as_deref());
    let state = context.control.state();
    let user = |volume: &VolumeName, part: bool, url: &VolumeUrl| {
        let options = ImageOptions::from_url(url).ok()?;
        let name = options.name;
        let is_there = name.pool == pool
            && name.namespace == cluster.namespace
            && conf(options.conf.as_deref()) == asked;
        is_there.then(|| {
            let user = User {
                volume: volume.clone(),
                part,
                snapshot: name.snapshot,
            };
            (name.image, user)
        })
    };
    let mut users = Vec::new();
    for (name, volume) in &state.volumes {
        if let Ok(whole) = volume.url.as_str().parse::<VolumeUrl>() {
            let images = images_below(&whole);
            users.extend(
                images
                    .iter()
                    .filter_map(|url| user(name, *url != whole, url)),
            );
        }
    }
    users
}

fn users_of(context: &Context, cluster: &Cluster, name: &ImageName) -> Vec<User> {
    let all = users_in(context, cluster, &name.pool).into_iter();
    let of_image = all.filter(|(image, _)| *image == name.image);
    of_image.map(|(_, user)| user).collect()
}

impl From<CephError> for ApiError {
    fn from(error: CephError) -> Self {
        let (status, code) = match &error {
            _ if error.is_missing() => (StatusCode::NOT_FOUND, "not_found"),
            _ if error.exists() => (StatusCode::CONFLICT, "exists"),
            _ if error.is_in_use() => (StatusCode::CONFLICT, "in_use"),
            _ => (StatusCode::UNPROCESSABLE_ENTITY, "cluster_failed"),
        };
        ApiError::new(status, code, error.to_string())
    }
}

/// Does something with a pool's images, on a thread that may wait for the cluster.
async fn ask<T: Send + 'static>(
    context: &Context,
    cluster: &Cluster,
    pool: &str,
    work: impl FnOnce(&Images) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let refused = |code, message: String, hint: &str| {
        let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message);
        Err(error.with_hint(Some(hint.to_owned())))
    };
    let credentials = cluster.credentials()?;
    let Some(ceph) = context.ceph.clone() else {
        let message = "this gateway has no data path that knows Ceph".to_owned();
        return refused("no_ceph", message, "see the gateway's log");
    };
    let place = match context
        .calls
        .place(credentials.conf.as_deref().unwrap_or(CONF))
    {
        Ok(place) => place,
        Err(message) => {
            return refused("busy", message, "see whether the cluster answers: ceph -s");
        }
    };
    let (pool, namespace) = (pool.to_owned(), cluster.namespace.clone());
    let (sender, answer) = tokio::sync::oneshot::channel();
    // Not one of the runtime's own, which are waited for at the end: a cluster may never answer.
    let started = std::thread::Builder::new()
        .name("weir-images".to_owned())
        .spawn(move || {
            let _place = place;
            let images = ceph.images(&credentials, &pool, &namespace);
            // Nobody listens any more where it took too long.
            let _ = sender.send(images.map_err(ApiError::from).and_then(|i| work(&i)));
        });
    if let Err(error) = started {
        let message = format!("no thread can be had: {error}");
        return refused("busy", message, "see the limits on threads (ulimit -u)");
    }
    match tokio::time::timeout(CLUSTER_TIME_MAX, answer).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => {
            let message = "the call ended without an answer".to_owned();
            refused("cluster_failed", message, "see the gateway's log")
        }
        Err(_) => {
            let seconds = CLUSTER_TIME_MAX.as_secs();
            let message = format!(
                "the cluster has not answered within {seconds} seconds; whether it was done is open"
            );
            refused("cluster_timeout", message, "see ceph -s, and ask again")
        }
    }
}

/// What an image is like, without the gateway's volumes.
fn look(images: &Images, name: &ImageName) -> Result<ImageView, ApiError> {
    let info = images.info(&name.image)?;
    let snapshots = images.snapshots(&name.image)?.into_iter();
    Ok(ImageView {
        pool: name.pool.clone(),
        namespace: name.namespace.clone(),
        name: info.name,
        size_bytes: info.bytes,
        object_bytes: info.object_bytes,
        locked_by: info.locked_by,
        snapshots: snapshots
            .map(|snapshot| SnapshotView {
                name: snapshot.name,
                size_bytes: snapshot.bytes,
            })
            .collect(),
        volumes: Vec::new(),
    })
}

fn with_users(
    context: &Context,
    cluster: &Cluster,
    name: &ImageName,
    view: ImageView,
) -> ImageView {
    let users = users_of(context, cluster, name).into_iter();
    ImageView {
        volumes: users.map(|user| user.volume).collect(),
        ..view
    }
}

async fn view(
    context: &Context,
    cluster: &Cluster,
    name: ImageName,
) -> Result<ImageView, ApiError> {
    let asked = name.clone();
    let found = ask(context, cluster, &name.pool, move |images| {
        look(images, &asked)
    });
    let found = found.await?;
    Ok(with_users(context, cluster, &name, found))
}

/// Lists the images of a pool, or of a namespace in it.
#[utoipa::path(get, path = "/v1/images/{pool}", tag = "images", operation_id = "list_images",
    params(("pool" = String, Path), Cluster),
    responses((status = 200, body = Vec<ImageSummary>), Refusals))]
pub(super) async fn list(
    State(context): Shared,
    Names(pool): Names<String>,
    Options(cluster): Options<Cluster>,
) -> Result<Json<Vec<ImageSummary>>, ApiError> {
    let names = ask(&context, &cluster, &pool, |images| Ok(images.list()?)).await?;
    let users = users_in(&context, &cluster, &pool);
    let summary = |name: String| {
        let own = users.iter().filter(|(image, _)| *image == name);
        let volumes = own.map(|(_, user)| user.volume.clone()).collect();
        ImageSummary { name, volumes }
    };
    Ok(Json(names.into_iter().map(summary).collect()))
}

/// Shows an image.
#[utoipa::path(get, path = "/v1/images/{pool}/{image}", tag = "images", operation_id = "show_image",
    params(("pool" = String, Path), ("image" = String, Path), Cluster),
    responses((status = 200, body = ImageView), Refusals))]
pub(super) async fn show(
    State(context): Shared,
    Names((pool, image)): Names<(String, String)>,
    Options(cluster): Options<Cluster>,
) -> Result<Json<ImageView>, ApiError> {
    let name = cluster.image(&pool, &image, None)?;
    view(&context, &cluster, name).await.map(Json)
}

/// Makes an image.
#[utoipa::path(put, path = "/v1/images/{pool}/{image}", tag = "images",
    operation_id = "create_image",
    params(("pool" = String, Path), ("image" = String, Path), Cluster), request_body = ImageSpec,
    responses((status = 201, body = ImageView), (status = 200, body = ImageView), Refusals))]
pub(super) async fn create(
    State(context): Shared,
    Names((pool, image)): Names<(String, String)>,
    Options(cluster): Options<Cluster>,
    Body(spec): Body<ImageSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let name = cluster.image(&pool, &image, None)?;
    if spec.size.0 == 0 {
        return Err(invalid("an image of no bytes cannot be served"));
    }
    let asked = name.clone();
    let work = move |images: &Images| {
        let new = NewImage {
            bytes: spec.size.0,
            object_bytes: spec.object_size.map(|size| size.0),
            data_pool: spec.data_pool.clone(),
        };
        match images.create(&asked.image, &new) {
            Ok(()) => Ok((true, look(images, &asked)?)),
            Err(error) if error.exists() => {
                let there = look(images, &asked)?;
                if let Some(pool) = &new.data_pool {
                    let data = images.data_pool(&asked.image)?;
                    if data != *pool {
                        return Err(has_data_elsewhere(&asked, &data, pool));
                    }
                }
                let is_so = there.size_bytes == new.bytes
                    && new
                        .object_bytes
                        .is_none_or(|bytes| bytes == there.object_bytes);
                match is_so {
                    true => Ok((false, there)),
                    false => Err(differs(&asked, &there)),
                }
            }
            Err(error) => Err(error.into()),
        }
    };
    let (made, found) = ask(&context, &cluster, &pool, work).await?;
    Ok(added(made, with_users(&context, &cluster, &name, found)))
}

fn has_data_elsewhere(name: &ImageName, data: &str, asked: &str) -> ApiError {
    let message = format!(
        "image {name} is there already, with its data in pool {data}, and not in pool {asked}"
    );
    let hint = "choose another name: the pool of an image's data does not change".to_owned();
    ApiError::new(StatusCode::CONFLICT, "exists", message).with_hint(Some(hint))
}

fn differs(name: &ImageName, there: &ImageView) -> ApiError {
    let message = format!(
        "image {name} is there already, with {} bytes in objects of {}",
        there.size_bytes, there.object_bytes
    );
    let hint = format!("choose another name, or: weir image resize {name} SIZE");
    ApiError::new(StatusCode::CONFLICT, "exists", message).with_hint(Some(hint))
}

/// Changes an image's size. Where a volume of the gateway is made of it, that is resized, and its hosts are told.
#[utoipa::path(post, path = "/v1/images/{pool}/{image}/resize", tag = "images",
    operation_id = "resize_image",
    params(("pool" = String, Path), ("image" = String, Path), Cluster),
    request_body = ImageResize,
    responses((status = 200, body = ImageView), Refusals))]
pub(super) async fn resize(
    State(context): Shared,
    Names((pool, image)): Names<(String, String)>,
    Options(cluster): Options<Cluster>,
    Body(ImageResize { size, force }): Body<ImageResize>,
) -> Result<Json<ImageView>, ApiError> {
    let name = cluster.image(&pool, &image, None)?;
    if size.0 == 0 {
        return Err(invalid("an image of no bytes cannot be served"));
    }
    let users = users_of(&context, &cluster, &name).into_iter();
    let mut part_of = None;
    for user in users.filter(|user| user.snapshot.is_none()) {
        if !user.part {
            context.control.resize(user.volume, size.0, force).await?;
            return view(&context, &cluster, name).await.map(Json);
        }
        part_of = Some(user);
    }
    let asked = name.clone();
    let work = move |images: &Images| {
        let before = images.info(&asked.image)?.bytes;
        if size.0 < before {
            refuse_served(&asked, part_of.as_slice())?;
        }
        if size.0 < before && !force {
            let message = format!(
                "image {asked} would be shrunk from {before} to {} bytes, which destroys what lies behind the new end",
                size.0
            );
            let error = ApiError::new(StatusCode::CONFLICT, "would_shrink", message);
            return Err(error.with_hint(Some("use --force if that is meant".to_owned())));
        }
        images.resize(&asked.image, size.0, force)?;
        look(images, &asked)
    };
    let found = ask(&context, &cluster, &pool, work).await?;
    Ok(Json(with_users(&context, &cluster, &name, found)))
}

/// Moves an image to the pool's trash, from which it can be restored. One that a volume of the gateway is made of is refused.
#[utoipa::path(delete, path = "/v1/images/{pool}/{image}", tag = "images",
    operation_id = "delete_image",
    params(("pool" = String, Path), ("image" = String, Path), Cluster),
    responses((status = 204), Refusals))]
pub(super) async fn remove(
    State(context): Shared,
    Names((pool, image)): Names<(String, String)>,
    Options(cluster): Options<Cluster>,
) -> Result<StatusCode, ApiError> {
    let name = cluster.image(&pool, &image, None)?;
    refuse_served(&name, &users_of(&context, &cluster, &name))?;
    let work = move |images: &Images| Ok(images.trash(&name.image, 0)?);
    ask(&context, &cluster, &pool, work).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses to take away what volumes of the gateway are made of.
fn refuse_served(name: &ImageName, users: &[User]) -> Result<(), ApiError> {
    let Some(User { volume, .. }) = users.first() else {
        return Ok(());
    };
    let message = format!("volume {volume} of this gateway is made of {name}");
    let hint = format!("remove its namespaces and then the volume: weir volume remove {volume}");
    Err(ApiError::new(StatusCode::CONFLICT, "in_use", message).with_hint(Some(hint)))
}

/// Lists an image's snapshots, from the oldest on.
#[utoipa::path(get, path = "/v1/images/{pool}/{image}/snapshots", tag = "images",
    operation_id = "list_snapshots",
    params(("pool" = String, Path), ("image" = String, Path), Cluster),
    responses((status = 200, body = Vec<SnapshotView>), Refusals))]
pub(super) async fn snapshots(
    State(context): Shared,
    Names((pool, image)): Names<(String, String)>,
    Options(cluster): Options<Cluster>,
) -> Result<Json<Vec<SnapshotView>>, ApiError> {
    let name = cluster.image(&pool, &image, None)?;
    let found = view(&context, &cluster, name).await?;
    Ok(Json(found.snapshots))
}

/// Makes a snapshot: what was acknowledged by then is in it.
#[utoipa::path(put, path = "/v1/images/{pool}/{image}/snapshots/{snapshot}", tag = "images",
    operation_id = "create_snapshot",
    params(("pool" = String, Path), ("image" = String, Path), ("snapshot" = String, Path), Cluster),
    responses((status = 201, body = SnapshotView), Refusals))]
pub(super) async fn create_snapshot(
    State(context): Shared,
    Names((pool, image, snapshot)): Names<(String, String, String)>,
    Options(cluster): Options<Cluster>,
) -> Result<impl IntoResponse, ApiError> {
    let name = cluster.image(&pool, &image, Some(&snapshot))?;
    let work = move |images: &Images| {
        images.create_snapshot(&name.image, &snapshot)?;
        let mut all = images.snapshots(&name.image)?.into_iter();
        let made = all.find(|other| other.name == snapshot);
        let made = made.ok_or_else(|| missing_snapshot(&name))?;
        Ok(SnapshotView {
            name: made.name,
            size_bytes: made.bytes,
        })
    };
    let made = ask(&context, &cluster, &pool, work).await?;
    Ok(added(true, made))
}

fn missing_snapshot(name: &ImageName) -> ApiError {
    let message = format!("there is no snapshot {name}");
    let hint = format!(
        "see: weir image snapshot list {}",
        ImageName {
            snapshot: None,
            ..name.clone()
        }
    );
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message).with_hint(Some(hint))
}

/// Deletes a snapshot. One that a volume of the gateway is made of is refused.
#[utoipa::path(delete, path = "/v1/images/{pool}/{image}/snapshots/{snapshot}", tag = "images",
    operation_id = "delete_snapshot",
    params(("pool" = String, Path), ("image" = String, Path), ("snapshot" = String, Path), Cluster),
    responses((status = 204), Refusals))]
pub(super) async fn remove_snapshot(
    State(context): Shared,
    Names((pool, image, snapshot)): Names<(String, String, String)>,
    Options(cluster): Options<Cluster>,
) -> Result<StatusCode, ApiError> {
    let name = cluster.image(&pool, &image, Some(&snapshot))?;
    let users = users_of(&context, &cluster, &name).into_iter();
    let of_snapshot = users.filter(|user| user.snapshot == name.snapshot);
    refuse_served(&name, &of_snapshot.collect::<Vec<_>>())?;
    let work = move |images: &Images| {
        let known = images.snapshots(&name.image)?;
        if !known.iter().any(|other| other.name == snapshot) {
            return Err(missing_snapshot(&name));
        }
        Ok(images.remove_snapshot(&name.image, &snapshot)?)
    };
    ask(&context, &cluster, &pool, work).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a writable image of a snapshot. It needs the snapshot for as long as it is there.
#[utoipa::path(post, path = "/v1/images/{pool}/{image}/snapshots/{snapshot}/clone", tag = "images",
    operation_id = "clone_snapshot",
    params(("pool" = String, Path), ("image" = String, Path), ("snapshot" = String, Path), Cluster),
    request_body = CloneSpec,
    responses((status = 201, body = ImageView), Refusals))]
pub(super) async fn clone_snapshot(
    State(context): Shared,
    Names((pool, image, snapshot)): Names<(String, String, String)>,
    Options(cluster): Options<Cluster>,
    Body(spec): Body<CloneSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let from = cluster.image(&pool, &image, Some(&snapshot))?;
    let target = Cluster {
        namespace: spec.namespace,
        ..cluster.clone()
    };
    let to = target.image(&spec.pool, &spec.name, None)?;
    let made = to.clone();
    let work = move |images: &Images| {
        let known = images.snapshots(&from.image)?;
        if !known.iter().any(|other| other.name == snapshot) {
            return Err(missing_snapshot(&from));
        }
        Ok(images.clone_of(&from.image, &snapshot, &to.pool, &to.namespace, &to.image)?)
    };
    ask(&context, &cluster, &pool, work).await?;
    Ok(added(true, view(&context, &target, made).await?))
}

/// Lists the trash of a pool, or of a namespace in it.
#[utoipa::path(get, path = "/v1/trash/{pool}", tag = "images", operation_id = "list_trash",
    params(("pool" = String, Path), Cluster),
    responses((status = 200, body = Vec<TrashedView>), Refusals))]
pub(super) async fn trashed(
    State(context): Shared,
    Names(pool): Names<String>,
    Options(cluster): Options<Cluster>,
) -> Result<Json<Vec<TrashedView>>, ApiError> {
    let trashed = ask(&context, &cluster, &pool, |images| Ok(images.trashed()?)).await?;
    let view = |image: weir_rbd::Trashed| TrashedView {
        id: image.id,
        name: image.name,
        kept_until: image.kept_until,
    };
    Ok(Json(trashed.into_iter().map(view).collect()))
}

/// Takes an image out of the trash, under a name that is free.
#[utoipa::path(post, path = "/v1/trash/{pool}/{id}/restore", tag = "images",
    operation_id = "restore_image",
    params(("pool" = String, Path), ("id" = String, Path), Cluster), request_body = RestoreSpec,
    responses((status = 200, body = ImageView), Refusals))]
pub(super) async fn restore(
    State(context): Shared,
    Names((pool, id)): Names<(String, String)>,
    Options(cluster): Options<Cluster>,
    Body(spec): Body<RestoreSpec>,
) -> Result<Json<ImageView>, ApiError> {
    let name = cluster.image(&pool, &spec.name, None)?;
    let asked = name.clone();
    let work = move |images: &Images| {
        images.restore(&id, &asked.image)?;
        look(images, &asked)
    };
    let found = ask(&context, &cluster, &pool, work).await?;
    Ok(Json(with_users(&context, &cluster, &name, found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_answers_nothing_takes_no_room_of_others() {
        let calls = Calls::default();
        let mut held: Vec<_> = (0..CALLS_MAX).map(|_| calls.place("a").unwrap()).collect();
        let full = calls.place("a").err().unwrap();
        assert_eq!(full, "8 calls wait for the cluster of a already");
        held.extend((0..CALLS_MAX).map(|_| calls.place("b").unwrap()));
        drop(held.remove(0));
        held.push(calls.place("a").unwrap());
        for number in held.len()..CALLS_OF_ALL_MAX {
            held.push(calls.place(&number.to_string()).unwrap());
        }
        let full = calls.place("c").err().unwrap();
        assert_eq!(full, "32 calls wait for clusters already");
        held.clear();
        assert!(lock(&calls.0).is_empty());
    }
}
