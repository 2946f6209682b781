//! `/v1/hosts`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;

use super::input::{Body, Force, Names, Options};
use super::views::HostView;
use super::{ApiError, Context, Refusals, Shared, added};
use crate::name::HostName;
use crate::state::{Change, HostPatch, HostSpec};

fn view(context: &Context, name: &HostName) -> Result<HostView, ApiError> {
    let state = context.control.state();
    let host = state.host(name)?;
    Ok(HostView::new(&state, name, host))
}

/// Lists the registered hosts.
#[utoipa::path(get, path = "/v1/hosts", tag = "hosts", operation_id = "list_hosts",
    responses((status = 200, body = Vec<HostView>)))]
pub(super) async fn list(State(context): Shared) -> Json<Vec<HostView>> {
    let state = context.control.state();
    Json(
        state
            .hosts
            .iter()
            .map(|(name, host)| HostView::new(&state, name, host))
            .collect(),
    )
}

/// Shows a host.
#[utoipa::path(get, path = "/v1/hosts/{name}", tag = "hosts", operation_id = "show_host",
    params(("name" = HostName, Path)), responses((status = 200, body = HostView), Refusals))]
pub(super) async fn show(
    State(context): Shared,
    Names(name): Names<HostName>,
) -> Result<Json<HostView>, ApiError> {
    view(&context, &name).map(Json)
}

/// Registers a host. One that is named by an NQN or an iSCSI name connects under that without being told so.
#[utoipa::path(put, path = "/v1/hosts/{name}", tag = "hosts", operation_id = "add_host",
    params(("name" = HostName, Path)), request_body = HostSpec,
    responses((status = 201, body = HostView), (status = 200, body = HostView), Refusals))]
pub(super) async fn add(
    State(context): Shared,
    Names(name): Names<HostName>,
    Body(spec): Body<HostSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let outcome = context
        .control
        .change(Change::AddHost {
            name: name.clone(),
            spec,
        })
        .await?;
    Ok(added(outcome.changed, view(&context, &name)?))
}

/// Changes a host. Socket options hold for its connections from now on.
#[utoipa::path(patch, path = "/v1/hosts/{name}", tag = "hosts", operation_id = "set_host",
    params(("name" = HostName, Path)), request_body = HostPatch,
    responses((status = 200, body = HostView), Refusals))]
pub(super) async fn set(
    State(context): Shared,
    Names(name): Names<HostName>,
    Body(patch): Body<HostPatch>,
) -> Result<Json<HostView>, ApiError> {
    context
        .control
        .change(Change::SetHost {
            name: name.clone(),
            patch,
        })
        .await?;
    view(&context, &name).map(Json)
}

/// Removes a host. With force, it is taken off every subsystem, namespace, target and logical unit that names it.
#[utoipa::path(delete, path = "/v1/hosts/{name}", tag = "hosts", operation_id = "remove_host",
    params(("name" = HostName, Path), Force), responses((status = 204), Refusals))]
pub(super) async fn remove(
    State(context): Shared,
    Names(name): Names<HostName>,
    Options(Force { force }): Options<Force>,
) -> Result<StatusCode, ApiError> {
    context
        .control
        .change(Change::RemoveHost { name, force })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
