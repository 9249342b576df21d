/** Versions of built-in kinds beside the one that a request uses, for the ownership of fields. */
import { parseApiVersion, type GroupVersionKind, type KubeObject } from '../../api/meta/object.ts';
import type { ResourceInfo, Schema } from '../../api/schema/schema.ts';
import type { OtherVersion } from './field-management.ts';

/** The version of a built-in kind that an owner of fields wrote in, if it is another one than that of `info`. */
export function otherVersion(
  schema: Schema,
  convert: (object: KubeObject, kind: GroupVersionKind) => KubeObject,
  info: ResourceInfo,
  apiVersion: string,
): OtherVersion | undefined {
  const gv = parseApiVersion(apiVersion);
  if (gv === undefined || gv.group !== info.group || gv.version === info.version) return undefined;
  const struct = schema.kind(gv.group, gv.version, info.kind);
  if (struct === undefined) return undefined;
  return { struct, convert: (object) => convert(object, { ...gv, kind: info.kind }) };
}
