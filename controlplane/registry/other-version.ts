/** Finds the versions of built-in kinds other than that of a request, for the ownership of fields. */
import { parseApiVersion, type GroupVersionKind, type KubeObject } from '../../api/meta/object.ts';
import type { ResourceInfo, Schema } from '../../api/schema/schema.ts';
import type { OtherVersion } from './field-management.ts';

/**
 * Returns the version of a built-in kind in which an owner of fields wrote: `undefined` if it is that of `info`, and `unknown`
 * if it is of another group or the schema does not have it.
 */
export function otherVersion(
  schema: Schema,
  convert: (object: KubeObject, kind: GroupVersionKind) => KubeObject,
  info: ResourceInfo,
  apiVersion: string,
): OtherVersion | 'unknown' | undefined {
  const gv = parseApiVersion(apiVersion);
  if (gv === undefined || gv.group !== info.group) return 'unknown';
  if (gv.version === info.version) return undefined;
  const { group, version, kind } = info;
  const struct = schema.kind(group, gv.version, kind);
  if (struct === undefined) return 'unknown';
  return {
    struct,
    convert: (object) => convert(object, { group, version: gv.version, kind }),
    restore: (object) => convert(object, { group, version, kind }),
  };
}
