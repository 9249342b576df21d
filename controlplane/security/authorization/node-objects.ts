/**
 * Makes those decisions of the Node authorizer that need no other objects than the requested one: a node has the objects with
 * its own name.
 */
import { quote } from '../../../api/meta/field-error.ts';
import type { AuthorizationAttributes, Decision } from './authorization.ts';
import { NODE_LEASE_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

export const ALLOW: Decision = { decision: 'allow', reason: '' };

/** Leaves the decision to the other authorizers. */
export const noOpinion = (reason: string): Decision => ({ decision: 'no-opinion', reason });

/** Decides about leases: a node may use its own one in the namespace of node leases. */
export function lease(node: string, attributes: AuthorizationAttributes): Decision {
  if (!['get', 'create', 'update', 'patch', 'delete'].includes(attributes.verb)) {
    return noOpinion('can only get, create, update, patch, or delete a node lease');
  }
  if (attributes.namespace !== NODE_LEASE_NAMESPACE)
    return noOpinion(`can only access leases in the ${quote(NODE_LEASE_NAMESPACE)} system namespace`);
  // The name of a new object is not known at authorization. The NodeRestriction admission plugin checks it.
  if (attributes.verb !== 'create' && attributes.name !== node) {
    return noOpinion('can only access node lease with the same name as the requesting node');
  }
  return ALLOW;
}

/** Decides about CSINodes: a node may use the one with its own name. */
export function csiNode(node: string, attributes: AuthorizationAttributes): Decision {
  if (!['get', 'create', 'update', 'patch', 'delete'].includes(attributes.verb)) {
    return noOpinion('can only get, create, update, patch, or delete a CSINode');
  }
  if (attributes.subresource !== '') return noOpinion('cannot authorize CSINode subresources');
  if (attributes.verb !== 'create' && attributes.name !== node) {
    return noOpinion('can only access CSINode with the same name as the requesting node');
  }
  return ALLOW;
}

/** Decides about Nodes. The NodeRestriction admission plugin checks which Node is written. */
export function nodeObject(node: string, attributes: AuthorizationAttributes): Decision {
  const { verb, subresource, name } = attributes;
  if (subresource === 'status') return verb === 'update' || verb === 'patch' ? ALLOW : noOpinion('');
  if (subresource !== '') return noOpinion('');
  if (verb === 'create' || verb === 'update' || verb === 'patch') return ALLOW;
  if (verb !== 'get' && verb !== 'list' && verb !== 'watch') return noOpinion('');
  if (name === node) return ALLOW;
  return noOpinion(`node '${node}' cannot read ${name === '' ? 'all nodes' : `'${name}'`}, only its own Node object`);
}

/** Whether the request selects objects whose field has this value. */
export function selects(attributes: AuthorizationAttributes, field: string, value: string): boolean {
  return (
    attributes.fieldSelector?.some(
      (one) =>
        one.key === field &&
        ['In', '=', '=='].includes(one.operator) &&
        one.values.length === 1 &&
        one.values[0] === value,
    ) ?? false
  );
}
