//! `weir image`.

use weir_block::size::Size;
use weir_gateway::api::SizeInput;
use weir_gateway::api::images::{
    CloneSpec, ImageResize, ImageSpec, ImageSummary, ImageView, RestoreSpec, SnapshotView,
    TrashedView,
};

use super::Asked;
use crate::cli::{
    ClusterArguments, ImageCommand, ImageCommandArguments, ImagePlace, PoolPlace, SnapshotCommand,
};
use crate::client::{Failure, segment};
use crate::table::{lines, or_dash, table, values};

/// What is said of the cluster behind a path.
fn query(cluster: &ClusterArguments, namespace: &str) -> String {
    let path =
        |given: &Option<std::path::PathBuf>| given.as_ref().map(|path| path.display().to_string());
    let namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
    let pairs = [
        ("namespace", namespace),
        ("conf", path(&cluster.conf)),
        ("id", cluster.id.clone()),
        ("keyring", path(&cluster.keyring)),
    ];
    let given = pairs.into_iter().filter_map(|(name, value)| {
        let value = value?;
        Some(format!("{name}={}", segment(&value)))
    });
    let text = given.collect::<Vec<_>>().join("&");
    match text.is_empty() {
        true => text,
        false => format!("?{text}"),
    }
}

fn of_pool(kind: &str, place: &PoolPlace, cluster: &ClusterArguments) -> String {
    let query = query(cluster, &place.namespace);
    format!("/v1/{kind}/{}{query}", segment(&place.pool))
}

/// The path of an image, of what `below` it is meant.
fn of_image(place: &ImagePlace, below: &str, cluster: &ClusterArguments) -> String {
    let ImagePlace {
        pool,
        namespace,
        image,
    } = place;
    let query = query(cluster, namespace);
    format!(
        "/v1/images/{}/{}{below}{query}",
        segment(pool),
        segment(image)
    )
}

pub(crate) fn run(asked: &Asked, arguments: ImageCommandArguments) -> Result<String, Failure> {
    let ImageCommandArguments { cluster, command } = arguments;
    let client = &asked.client;
    match command {
        ImageCommand::List { pool } => {
            asked.show(&client.get(&of_pool("images", &pool, &cluster))?, list)
        }
        ImageCommand::Show { image } => {
            asked.show(&client.get(&of_image(&image, "", &cluster))?, show)
        }
        ImageCommand::Create {
            image,
            size,
            object_size,
            data_pool,
        } => {
            let spec = ImageSpec {
                size: SizeInput(size),
                object_size: object_size.map(SizeInput),
                data_pool,
            };
            let answer = client.put(&of_image(&image, "", &cluster), &spec)?;
            asked.show_added(&answer, &format!("image {image}"), show)
        }
        ImageCommand::Resize { image, size, force } => {
            let resize = ImageResize {
                size: SizeInput(size),
                force,
            };
            asked.show(
                &client.post(&of_image(&image, "/resize", &cluster), &resize)?,
                show,
            )
        }
        ImageCommand::Delete { image } => {
            client.delete(&of_image(&image, "", &cluster))?;
            let pool = image.place();
            Ok(asked.show_done(&format!(
                "moved image {image} to the trash of {pool}; see: weir image trash {pool}"
            )))
        }
        ImageCommand::Trash { pool } => {
            asked.show(&client.get(&of_pool("trash", &pool, &cluster))?, trash)
        }
        ImageCommand::Restore { pool, id, name } => {
            let query = query(&cluster, &pool.namespace);
            let path = format!(
                "/v1/trash/{}/{}/restore{query}",
                segment(&pool.pool),
                segment(&id)
            );
            asked.show(&client.post(&path, &RestoreSpec { name })?, show)
        }
        ImageCommand::Clone { snapshot, to } => {
            let (image, name) = snapshot;
            let spec = CloneSpec {
                pool: to.pool.clone(),
                namespace: to.namespace.clone(),
                name: to.image.clone(),
            };
            let below = format!("/snapshots/{}/clone", segment(&name));
            let answer = client.post(&of_image(&image, &below, &cluster), &spec)?;
            asked.show_added(&answer, &format!("image {to}"), show)
        }
        ImageCommand::Snapshot(command) => snapshot(asked, &cluster, command),
    }
}

fn snapshot(
    asked: &Asked,
    cluster: &ClusterArguments,
    command: SnapshotCommand,
) -> Result<String, Failure> {
    let client = &asked.client;
    let path = |(image, name): &(ImagePlace, String)| {
        of_image(image, &format!("/snapshots/{}", segment(name)), cluster)
    };
    match command {
        SnapshotCommand::List { image } => asked.show(
            &client.get(&of_image(&image, "/snapshots", cluster))?,
            |all: Vec<SnapshotView>| snapshots(&all),
        ),
        SnapshotCommand::Create { snapshot } => {
            let nothing = serde_json::json!({});
            let answer = client.put(&path(&snapshot), &nothing)?;
            let what = format!("snapshot {}@{}", snapshot.0, snapshot.1);
            asked.show_added(&answer, &what, |made: SnapshotView| snapshots(&[made]))
        }
        SnapshotCommand::Delete { snapshot } => {
            client.delete(&path(&snapshot))?;
            let (image, name) = snapshot;
            Ok(asked.show_done(&format!("deleted snapshot {image}@{name}")))
        }
    }
}

fn list(images: Vec<ImageSummary>) -> String {
    let row = |image: &ImageSummary| [image.name.clone(), or_dash(volumes(&image.volumes))];
    let rows: Vec<_> = images.iter().map(row).collect();
    table(["NAME", "VOLUMES"], &rows)
}

fn volumes(names: &[weir_gateway::name::VolumeName]) -> Option<String> {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn size(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", Size(bytes))
}

fn show(view: ImageView) -> String {
    let place = ImagePlace {
        pool: view.pool,
        namespace: view.namespace,
        image: view.name,
    };
    let snapshots = view.snapshots.iter();
    let snapshot =
        |snapshot: &SnapshotView| format!("{} ({} bytes)", snapshot.name, snapshot.size_bytes);
    values(&[
        ("image", place.to_string()),
        ("size", size(view.size_bytes)),
        ("objects", size(view.object_bytes)),
        ("locked by", or_dash(view.locked_by)),
        ("snapshots", lines(snapshots.map(snapshot))),
        ("volumes", lines(view.volumes)),
    ])
}

fn snapshots(all: &[SnapshotView]) -> String {
    let row = |one: &SnapshotView| [one.name.clone(), Size(one.size_bytes).to_string()];
    let rows: Vec<_> = all.iter().map(row).collect();
    table(["NAME", "SIZE"], &rows)
}

fn trash(images: Vec<TrashedView>) -> String {
    let rows: Vec<_> = images.into_iter().map(|one| [one.id, one.name]).collect();
    table(["ID", "NAME"], &rows)
}
