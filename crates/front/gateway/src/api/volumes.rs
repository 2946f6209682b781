//! `/v1/volumes`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::input::{Body, Names, SizeInput};
use super::views::VolumeView;
use super::{ApiError, Context, Refusals, Shared, added};
use crate::name::VolumeName;
use crate::state::Change;

/// What a volume to be added should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    /// What the volume is.
    #[schema(example = "file:/srv/images?size=10G")]
    pub url: String,
}

/// The size that a volume should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// The new size.
    pub size: SizeInput,
    /// Whether to destroy what lies behind a smaller end.
    #[serde(default)]
    pub force: bool,
}

fn view(context: &Context, name: &VolumeName) -> Result<VolumeView, ApiError> {
    let control = &context.control;
    let (state, failures) = (control.state(), control.failures());
    let volume = state.volume(name)?;
    Ok(VolumeView::new(
        &state,
        &failures,
        &**control.engine(),
        name,
        volume,
    ))
}

/// Lists the volumes.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes", operation_id = "list_volumes",
    responses((status = 200, body = Vec<VolumeView>)))]
pub(super) async fn list(State(context): Shared) -> Json<Vec<VolumeView>> {
    let control = &context.control;
    let (state, failures) = (control.state(), control.failures());
    let view =
        |(name, volume)| VolumeView::new(&state, &failures, &**control.engine(), name, volume);
    Json(state.volumes.iter().map(view).collect())
}

/// Shows a volume.
#[utoipa::path(get, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "show_volume",
    params(("name" = VolumeName, Path)),
    responses((status = 200, body = VolumeView), Refusals))]
pub(super) async fn show(
    State(context): Shared,
    Names(name): Names<VolumeName>,
) -> Result<Json<VolumeView>, ApiError> {
    view(&context, &name).map(Json)
}

/// Adds a volume; a file that is not there is made.
#[utoipa::path(put, path = "/v1/volumes/{name}", tag = "volumes", operation_id = "add_volume",
    params(("name" = VolumeName, Path)), request_body = VolumeSpec,
    responses((status = 201, body = VolumeView), (status = 200, body = VolumeView), Refusals))]
pub(super) async fn add(
    State(context): Shared,
    Names(name): Names<VolumeName>,
    Body(spec): Body<VolumeSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let change = Change::AddVolume {
        name: name.clone(),
        url: spec.url,
    };
    let outcome = context.control.change(change).await?;
    Ok(added(outcome.changed, view(&context, &name)?))
}

/// Removes a volume that is neither a namespace nor a logical unit. Its data stays where it is.
#[utoipa::path(delete, path = "/v1/volumes/{name}", tag = "volumes",
    operation_id = "remove_volume",
    params(("name" = VolumeName, Path)), responses((status = 204), Refusals))]
pub(super) async fn remove(
    State(context): Shared,
    Names(name): Names<VolumeName>,
) -> Result<StatusCode, ApiError> {
    context
        .control
        .change(Change::RemoveVolume { name })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes a volume's size. Connected hosts are told.
#[utoipa::path(post, path = "/v1/volumes/{name}/resize", tag = "volumes",
    operation_id = "resize_volume",
    params(("name" = VolumeName, Path)), request_body = Resize,
    responses((status = 200, body = VolumeView), Refusals))]
pub(super) async fn resize(
    State(context): Shared,
    Names(name): Names<VolumeName>,
    Body(Resize { size, force }): Body<Resize>,
) -> Result<Json<VolumeView>, ApiError> {
    context.control.resize(name.clone(), size.0, force).await?;
    view(&context, &name).map(Json)
}

/// Ends every registration and reservation of a volume, whoever has them; its hosts are told. For hosts that are gone for good: what
/// others do with their rights is not asked.
#[utoipa::path(delete, path = "/v1/volumes/{name}/reservations", tag = "volumes",
    operation_id = "clear_reservations",
    params(("name" = VolumeName, Path)), responses((status = 204), Refusals))]
pub(super) async fn clear_reservations(
    State(context): Shared,
    Names(name): Names<VolumeName>,
) -> Result<StatusCode, ApiError> {
    context.control.discard_reservations(name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Tries again to open a volume that failed to open, or of which an image was given up. One that is open and not lost stays as it is.
#[utoipa::path(post, path = "/v1/volumes/{name}/retry", tag = "volumes",
    operation_id = "retry_volume",
    params(("name" = VolumeName, Path)),
    responses((status = 200, body = VolumeView), Refusals))]
pub(super) async fn retry(
    State(context): Shared,
    Names(name): Names<VolumeName>,
) -> Result<Json<VolumeView>, ApiError> {
    context.control.retry_volume(name.clone()).await?;
    view(&context, &name).map(Json)
}
