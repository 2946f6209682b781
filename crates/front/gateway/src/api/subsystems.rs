//! `/v1/subsystems`, their allowed hosts and their namespaces.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;

use super::input::{Body, Force, Names, Options};
use super::views::{NamespaceView, SubsystemView};
use super::{ApiError, Context, Refusals, Shared, added};
use crate::name::{HostName, Nqn};
use crate::state::{
    Change, NamespacePatch, NamespaceSpec, NvmeChange, SubsystemPatch, SubsystemSpec, Visibility,
};

fn view(context: &Context, nqn: &Nqn) -> Result<SubsystemView, ApiError> {
    let control = &context.control;
    Ok(SubsystemView::new(
        &**control.engine(),
        nqn,
        control.state().subsystem(nqn)?,
    ))
}

fn namespace_view(context: &Context, nqn: &Nqn, nsid: u32) -> Result<NamespaceView, ApiError> {
    let control = &context.control;
    let state = control.state();
    let namespace = state.namespace(nqn, nsid)?;
    Ok(NamespaceView::new(
        &**control.engine(),
        nqn,
        nsid,
        namespace,
    ))
}

/// Refuses names that are neither a registered host's nor an NQN, under which one could be registered.
fn check_visible_to(context: &Context, visible_to: Option<&Visibility>) -> Result<(), ApiError> {
    let Some(Visibility::Hosts(hosts)) = visible_to else {
        return Ok(());
    };
    let state = context.control.state();
    let is_new = |name: &&HostName| !state.hosts.contains_key(*name);
    for name in hosts.iter().filter(is_new) {
        name.to_string().parse::<Nqn>().map_err(|error| {
            let message = format!("visible_to: {error}");
            ApiError::new(StatusCode::BAD_REQUEST, "invalid", message)
        })?;
    }
    Ok(())
}

/// Lists the subsystems.
#[utoipa::path(get, path = "/v1/subsystems", tag = "subsystems",
    operation_id = "list_subsystems",
    responses((status = 200, body = Vec<SubsystemView>)))]
pub(super) async fn list(State(context): Shared) -> Json<Vec<SubsystemView>> {
    let control = &context.control;
    let view = |(nqn, subsystem)| SubsystemView::new(&**control.engine(), nqn, subsystem);
    Json(control.state().subsystems.iter().map(view).collect())
}

/// Shows a subsystem.
#[utoipa::path(get, path = "/v1/subsystems/{nqn}", tag = "subsystems",
    operation_id = "show_subsystem",
    params(("nqn" = Nqn, Path)),
    responses((status = 200, body = SubsystemView), Refusals))]
pub(super) async fn show(
    State(context): Shared,
    Names(nqn): Names<Nqn>,
) -> Result<Json<SubsystemView>, ApiError> {
    view(&context, &nqn).map(Json)
}

/// Adds a subsystem.
#[utoipa::path(put, path = "/v1/subsystems/{nqn}", tag = "subsystems",
    operation_id = "add_subsystem",
    params(("nqn" = Nqn, Path)), request_body = SubsystemSpec,
    responses((status = 201, body = SubsystemView), (status = 200, body = SubsystemView), Refusals))]
pub(super) async fn add(
    State(context): Shared,
    Names(nqn): Names<Nqn>,
    Body(spec): Body<SubsystemSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let outcome = context
        .control
        .change(Change::Nvme(NvmeChange::AddSubsystem {
            nqn: nqn.clone(),
            spec,
        }))
        .await?;
    Ok(added(outcome.changed, view(&context, &nqn)?))
}

/// Changes a subsystem.
#[utoipa::path(patch, path = "/v1/subsystems/{nqn}", tag = "subsystems",
    operation_id = "set_subsystem",
    params(("nqn" = Nqn, Path)), request_body = SubsystemPatch,
    responses((status = 200, body = SubsystemView), Refusals))]
pub(super) async fn set(
    State(context): Shared,
    Names(nqn): Names<Nqn>,
    Body(patch): Body<SubsystemPatch>,
) -> Result<Json<SubsystemView>, ApiError> {
    context
        .control
        .change(Change::Nvme(NvmeChange::SetSubsystem {
            nqn: nqn.clone(),
            patch,
        }))
        .await?;
    view(&context, &nqn).map(Json)
}

/// Removes a subsystem. With force, its namespaces are removed with it; their volumes stay.
#[utoipa::path(delete, path = "/v1/subsystems/{nqn}", tag = "subsystems",
    operation_id = "remove_subsystem",
    params(("nqn" = Nqn, Path), Force), responses((status = 204), Refusals))]
pub(super) async fn remove(
    State(context): Shared,
    Names(nqn): Names<Nqn>,
    Options(Force { force }): Options<Force>,
) -> Result<StatusCode, ApiError> {
    context
        .control
        .change(Change::Nvme(NvmeChange::RemoveSubsystem { nqn, force }))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Allows a registered host to connect.
#[utoipa::path(put, path = "/v1/subsystems/{nqn}/hosts/{host}", tag = "subsystems",
    operation_id = "allow_host",
    params(("nqn" = Nqn, Path), ("host" = HostName, Path)),
    responses((status = 201, body = SubsystemView), (status = 200, body = SubsystemView), Refusals))]
pub(super) async fn allow_host(
    State(context): Shared,
    Names((nqn, host)): Names<(Nqn, HostName)>,
) -> Result<impl IntoResponse, ApiError> {
    let outcome = context
        .control
        .change(Change::Nvme(NvmeChange::AllowHost {
            nqn: nqn.clone(),
            host,
        }))
        .await?;
    Ok(added(outcome.changed, view(&context, &nqn)?))
}

/// Takes an allowance back. The host's controllers in this subsystem are ended.
#[utoipa::path(delete, path = "/v1/subsystems/{nqn}/hosts/{host}", tag = "subsystems",
    operation_id = "disallow_host",
    params(("nqn" = Nqn, Path), ("host" = HostName, Path)), responses((status = 204), Refusals))]
pub(super) async fn disallow_host(
    State(context): Shared,
    Names((nqn, host)): Names<(Nqn, HostName)>,
) -> Result<StatusCode, ApiError> {
    context
        .control
        .change(Change::Nvme(NvmeChange::DisallowHost { nqn, host }))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists a subsystem's namespaces.
#[utoipa::path(get, path = "/v1/subsystems/{nqn}/namespaces", tag = "subsystems",
    operation_id = "list_namespaces",
    params(("nqn" = Nqn, Path)),
    responses((status = 200, body = Vec<NamespaceView>), Refusals))]
pub(super) async fn list_namespaces(
    State(context): Shared,
    Names(nqn): Names<Nqn>,
) -> Result<Json<Vec<NamespaceView>>, ApiError> {
    view(&context, &nqn).map(|view| Json(view.namespaces))
}

/// Adds a namespace under the lowest free NSID, or finds one that already is as asked for.
#[utoipa::path(post, path = "/v1/subsystems/{nqn}/namespaces", tag = "subsystems",
    operation_id = "add_namespace_anywhere",
    params(("nqn" = Nqn, Path)), request_body = NamespaceSpec,
    responses((status = 201, body = NamespaceView), (status = 200, body = NamespaceView), Refusals))]
pub(super) async fn add_any_namespace(
    State(context): Shared,
    Names(nqn): Names<Nqn>,
    Body(spec): Body<NamespaceSpec>,
) -> Result<impl IntoResponse, ApiError> {
    check_visible_to(&context, spec.visible_to.as_ref())?;
    let change = Change::Nvme(NvmeChange::AddNamespace {
        nqn: nqn.clone(),
        nsid: None,
        spec,
    });
    let outcome = context.control.change(change).await?;
    let nsid = outcome.nsid.expect("adding a namespace says which").get();
    Ok(added(
        outcome.changed,
        namespace_view(&context, &nqn, nsid)?,
    ))
}

/// Shows a namespace.
#[utoipa::path(get, path = "/v1/subsystems/{nqn}/namespaces/{nsid}", tag = "subsystems",
    operation_id = "show_namespace",
    params(("nqn" = Nqn, Path), ("nsid" = u32, Path)),
    responses((status = 200, body = NamespaceView), Refusals))]
pub(super) async fn show_namespace(
    State(context): Shared,
    Names((nqn, nsid)): Names<(Nqn, u32)>,
) -> Result<Json<NamespaceView>, ApiError> {
    namespace_view(&context, &nqn, nsid).map(Json)
}

/// Adds a namespace.
#[utoipa::path(put, path = "/v1/subsystems/{nqn}/namespaces/{nsid}", tag = "subsystems",
    operation_id = "add_namespace",
    params(("nqn" = Nqn, Path), ("nsid" = u32, Path)), request_body = NamespaceSpec,
    responses((status = 201, body = NamespaceView), (status = 200, body = NamespaceView), Refusals))]
pub(super) async fn add_namespace(
    State(context): Shared,
    Names((nqn, nsid)): Names<(Nqn, u32)>,
    Body(spec): Body<NamespaceSpec>,
) -> Result<impl IntoResponse, ApiError> {
    check_visible_to(&context, spec.visible_to.as_ref())?;
    let change = Change::Nvme(NvmeChange::AddNamespace {
        nqn: nqn.clone(),
        nsid: Some(nsid),
        spec,
    });
    let outcome = context.control.change(change).await?;
    Ok(added(
        outcome.changed,
        namespace_view(&context, &nqn, nsid)?,
    ))
}

/// Changes a namespace. Connected hosts are told.
#[utoipa::path(patch, path = "/v1/subsystems/{nqn}/namespaces/{nsid}", tag = "subsystems",
    operation_id = "set_namespace",
    params(("nqn" = Nqn, Path), ("nsid" = u32, Path)), request_body = NamespacePatch,
    responses((status = 200, body = NamespaceView), Refusals))]
pub(super) async fn set_namespace(
    State(context): Shared,
    Names((nqn, nsid)): Names<(Nqn, u32)>,
    Body(patch): Body<NamespacePatch>,
) -> Result<Json<NamespaceView>, ApiError> {
    check_visible_to(&context, patch.visible_to.as_ref())?;
    context
        .control
        .change(Change::Nvme(NvmeChange::SetNamespace {
            nqn: nqn.clone(),
            nsid,
            patch,
        }))
        .await?;
    namespace_view(&context, &nqn, nsid).map(Json)
}

/// Removes a namespace; its volume stays. Connected hosts are told.
#[utoipa::path(delete, path = "/v1/subsystems/{nqn}/namespaces/{nsid}", tag = "subsystems",
    operation_id = "remove_namespace",
    params(("nqn" = Nqn, Path), ("nsid" = u32, Path)), responses((status = 204), Refusals))]
pub(super) async fn remove_namespace(
    State(context): Shared,
    Names((nqn, nsid)): Names<(Nqn, u32)>,
) -> Result<StatusCode, ApiError> {
    context
        .control
        .change(Change::Nvme(NvmeChange::RemoveNamespace { nqn, nsid }))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
