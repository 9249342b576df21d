/** Shows a request in the version of the resource that a policy or webhook registered for. */
import {
  apiVersionOf,
  type GroupVersionKind,
  type GroupVersionResource,
  type KubeObject,
} from '../../../../api/meta/object.ts';
import type { AdmissionAttributes } from '../admission.ts';
import type { RequestView } from './expressions.ts';

/** Finds the other versions of a resource, and converts objects between them. */
export interface VersionConversion {
  isNamespaced(resource: GroupVersionResource): boolean;
  equivalents(resource: GroupVersionResource, subresource: string): readonly GroupVersionResource[];
  kindOf(resource: GroupVersionResource, subresource: string): GroupVersionKind | undefined;
  /** Converts to the version of `kind`; throws if that fails. For a custom resource it may call the conversion webhook. */
  convert(object: KubeObject, kind: GroupVersionKind): KubeObject | Promise<KubeObject>;
  /** Converts a patched object to the types of its schema; throws if a value does not match. */
  conform?(object: KubeObject, kind: GroupVersionKind): KubeObject;
  /** Throws for a patched object that cannot be decoded strictly as one of `kind`. */
  checkPatched?(object: KubeObject, kind: GroupVersionKind): void;
  /** Returns the object as it is serialized, without the empty lists that a decoded object has until it is stored. */
  serialized?(object: KubeObject): KubeObject;
}

/**
 * Resolves to the view that a policy or webhook gets of a request if it registered for the resource `as`. Plugins have objects
 * in the stored version, so that those of another version are converted.
 */
export async function viewOf(
  attributes: AdmissionAttributes,
  as: GroupVersionResource,
  conversion: VersionConversion,
): Promise<RequestView> {
  const { resource, kind, object, oldObject } = attributes;
  const isExact = as.group === resource.group && as.version === resource.version && as.resource === resource.resource;
  const wanted = isExact ? kind : (conversion.kindOf(as, attributes.subresource) ?? kind);
  const serialized = (one: KubeObject): KubeObject => conversion.serialized?.(one) ?? one;
  const convert = async (one: KubeObject | undefined): Promise<KubeObject | undefined> => {
    if (one === undefined) return one;
    if (one.apiVersion === apiVersionOf(wanted)) return serialized(one);
    if (isExact && (one.apiVersion === undefined || one.kind !== wanted.kind)) return one;
    return serialized(await conversion.convert(one, wanted));
  };
  return {
    kind: wanted,
    resource: isExact ? resource : as,
    object: await convert(object),
    oldObject: await convert(oldObject),
  };
}

/** Returns the kind that the object names, or `otherwise` if it names none. */
export function kindOfObject({ apiVersion, kind }: KubeObject, otherwise: GroupVersionKind): GroupVersionKind {
  if (apiVersion === undefined || kind === undefined) return otherwise;
  const slash = apiVersion.indexOf('/');
  return { group: slash < 0 ? '' : apiVersion.slice(0, slash), version: apiVersion.slice(slash + 1), kind };
}
