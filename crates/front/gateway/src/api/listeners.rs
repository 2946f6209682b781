//! `/v1/listeners`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;

use super::input::{Body, Names};
use super::views::ListenerView;
use super::{ApiError, Context, Refusals, Shared, added};
use crate::name::ListenerAddress;
use crate::state::{Change, ListenerPatch, ListenerSpec};

fn view(context: &Context, address: &ListenerAddress) -> Result<ListenerView, ApiError> {
    let control = &context.control;
    let (state, failures) = (control.state(), control.failures());
    let portal = state.portal(address)?;
    Ok(ListenerView::new(
        &failures,
        &**control.engine(),
        address,
        portal,
    ))
}

/// Lists the listeners, those inherited from the service manager last.
#[utoipa::path(get, path = "/v1/listeners", tag = "listeners", operation_id = "list_listeners",
    responses((status = 200, body = Vec<ListenerView>)))]
pub(super) async fn list(State(context): Shared) -> Json<Vec<ListenerView>> {
    let control = &context.control;
    let (state, failures, engine) = (control.state(), control.failures(), &**control.engine());
    let view = |(address, portal)| ListenerView::new(&failures, engine, address, portal);
    let views = state.portals.iter().map(view);
    Json(views.chain(ListenerView::inherited(engine)).collect())
}

/// Shows a listener.
#[utoipa::path(get, path = "/v1/listeners/{address}", tag = "listeners",
    operation_id = "show_listener",
    params(("address" = ListenerAddress, Path)),
    responses((status = 200, body = ListenerView), Refusals))]
pub(super) async fn show(
    State(context): Shared,
    Names(address): Names<ListenerAddress>,
) -> Result<Json<ListenerView>, ApiError> {
    view(&context, &address).map(Json)
}

/// Adds a listener.
#[utoipa::path(put, path = "/v1/listeners/{address}", tag = "listeners",
    operation_id = "add_listener",
    params(("address" = ListenerAddress, Path)), request_body = ListenerSpec,
    responses((status = 201, body = ListenerView), (status = 200, body = ListenerView), Refusals))]
pub(super) async fn add(
    State(context): Shared,
    Names(address): Names<ListenerAddress>,
    Body(spec): Body<ListenerSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let change = Change::AddListener {
        address: address.clone(),
        spec,
    };
    let outcome = context.control.change(change).await?;
    Ok(added(outcome.changed, view(&context, &address)?))
}

/// Changes a listener. Socket options hold for connections accepted from now on.
#[utoipa::path(patch, path = "/v1/listeners/{address}", tag = "listeners",
    operation_id = "set_listener",
    params(("address" = ListenerAddress, Path)), request_body = ListenerPatch,
    responses((status = 200, body = ListenerView), Refusals))]
pub(super) async fn set(
    State(context): Shared,
    Names(address): Names<ListenerAddress>,
    Body(patch): Body<ListenerPatch>,
) -> Result<Json<ListenerView>, ApiError> {
    context
        .control
        .change(Change::SetListener {
            address: address.clone(),
            patch,
        })
        .await?;
    view(&context, &address).map(Json)
}

/// Removes a listener. Connections that were accepted there stay.
#[utoipa::path(delete, path = "/v1/listeners/{address}", tag = "listeners",
    operation_id = "remove_listener",
    params(("address" = ListenerAddress, Path)), responses((status = 204), Refusals))]
pub(super) async fn remove(
    State(context): Shared,
    Names(address): Names<ListenerAddress>,
) -> Result<StatusCode, ApiError> {
    context
        .control
        .change(Change::RemoveListener { address })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Tries again to open a listener that failed to open. One that is open stays as it is.
#[utoipa::path(post, path = "/v1/listeners/{address}/retry", tag = "listeners",
    operation_id = "retry_listener",
    params(("address" = ListenerAddress, Path)),
    responses((status = 200, body = ListenerView), Refusals))]
pub(super) async fn retry(
    State(context): Shared,
    Names(address): Names<ListenerAddress>,
) -> Result<Json<ListenerView>, ApiError> {
    context.control.retry_listener(address.clone()).await?;
    view(&context, &address).map(Json)
}
