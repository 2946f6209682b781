//! `/v1/hosts`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;

use super::input::{Body, Force, Names, Options};
use super::views::HostView;
use super::{ApiError, Context, Refusals, Shared, added};
use crate::name::{HostName, Nqn};
use crate::state::{Change, HostPatch, HostSpec};

/// Hosts that are registered here have their NQN for a name.
fn view(context: &Context, nqn: Nqn) -> Result<HostView, ApiError> {
    let name = HostName::from(nqn);
    let state = context.control.state();
    let host = state.host(&name)?;
    Ok(HostView::new(&state, &name, host))
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
#[utoipa::path(get, path = "/v1/hosts/{nqn}", tag = "hosts", operation_id = "show_host",
    params(("nqn" = Nqn, Path)), responses((status = 200, body = HostView), Refusals))]
pub(super) async fn show(
    State(context): Shared,
    Names(nqn): Names<Nqn>,
) -> Result<Json<HostView>, ApiError> {
    view(&context, nqn).map(Json)
}

/// Registers a host.
#[utoipa::path(put, path = "/v1/hosts/{nqn}", tag = "hosts", operation_id = "add_host",
    params(("nqn" = Nqn, Path)), request_body = HostSpec,
    responses((status = 201, body = HostView), (status = 200, body = HostView), Refusals))]
pub(super) async fn add(
    State(context): Shared,
    Names(nqn): Names<Nqn>,
    Body(spec): Body<HostSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let outcome = context
        .control
        .change(Change::AddHost {
            nqn: nqn.clone(),
            spec,
        })
        .await?;
    Ok(added(outcome.changed, view(&context, nqn)?))
}

/// Changes a host. Socket options hold for its connections from now on.
#[utoipa::path(patch, path = "/v1/hosts/{nqn}", tag = "hosts", operation_id = "set_host",
    params(("nqn" = Nqn, Path)), request_body = HostPatch,
    responses((status = 200, body = HostView), Refusals))]
pub(super) async fn set(
    State(context): Shared,
    Names(nqn): Names<Nqn>,
    Body(patch): Body<HostPatch>,
) -> Result<Json<HostView>, ApiError> {
    context
        .control
        .change(Change::SetHost {
            name: nqn.clone().into(),
            patch,
        })
        .await?;
    view(&context, nqn).map(Json)
}

/// Removes a host. With force, it is taken off every subsystem and namespace that names it.
#[utoipa::path(delete, path = "/v1/hosts/{nqn}", tag = "hosts", operation_id = "remove_host",
    params(("nqn" = Nqn, Path), Force), responses((status = 204), Refusals))]
pub(super) async fn remove(
    State(context): Shared,
    Names(nqn): Names<Nqn>,
    Options(Force { force }): Options<Force>,
) -> Result<StatusCode, ApiError> {
    context
        .control
        .change(Change::RemoveHost {
            name: nqn.into(),
            force,
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
