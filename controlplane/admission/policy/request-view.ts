/** A request in the version of the resource that a policy registered for. */
import type { GroupVersionResource, KubeObject } from '../../../api/meta/object.ts';
import type { AdmissionAttributes } from '../admission.ts';
import type { WebhookConversion } from '../webhook/webhooks.ts';
import type { RequestView } from './expressions.ts';

export function viewOf(
  attributes: AdmissionAttributes,
  as: GroupVersionResource,
  conversion: WebhookConversion,
): RequestView {
  const { resource, kind, object, oldObject } = attributes;
  if (as.group === resource.group && as.version === resource.version && as.resource === resource.resource) {
    return { kind, resource, object, oldObject };
  }
  const other = conversion.kindOf(as, attributes.subresource) ?? kind;
  const convert = (one: KubeObject | undefined): KubeObject | undefined =>
    one === undefined ? undefined : conversion.convert(one, other);
  return { kind: other, resource: as, object: convert(object), oldObject: convert(oldObject) };
}
