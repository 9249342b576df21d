/** Converts between versions of a custom resource that differ only in their name and schema (strategy `None`). */
import { cloneJson } from '../../../api/meta/json-equality.ts';
import { apiVersionOf, type JsonObject, type KubeObject } from '../../../api/meta/object.ts';
import type { Conversion } from '../strategy.ts';
import { conforms } from '../schemas/conformity.ts';
import { applyDefaultsToStored, dropNulls } from '../schemas/defaulting.ts';
import type { JsonSchema } from '../schemas/json-schema.ts';
import { prune } from '../schemas/pruning.ts';

/** A version of a definition. Its name is the part of `apiVersion` after the group. */
export interface VersionSchema {
  readonly name: string;
  readonly schema: JsonSchema;
}

/**
 * Returns the conversion of definitions without a webhook. Stored objects get the defaults of the stored version, including
 * those that were added later.
 */
export function renamingConversion(group: string, stored: VersionSchema, served: VersionSchema): Conversion {
  const isSame = stored.name === served.name;
  const fitted = (object: KubeObject, { name, schema }: VersionSchema): KubeObject => {
    const fit = prune(object as unknown as JsonObject, schema).value as unknown as KubeObject;
    fit.apiVersion = apiVersionOf({ group, version: name });
    return fit;
  };
  const written = new WeakMap<KubeObject, KubeObject>();
  return {
    toStored(object) {
      if (isSame) return object;
      const { value, unknown } = prune(object as unknown as JsonObject, stored.schema);
      const fit = Object.assign(value as unknown as KubeObject, {
        apiVersion: apiVersionOf({ group, version: stored.name }),
      });
      if (unknown.length > 0) written.set(fit, object);
      return fit;
    },
    asWritten: (object) => written.get(object),
    fromStored(object) {
      const members = object as unknown as JsonObject;
      applyDefaultsToStored(members, stored.schema);
      dropNulls(members, stored.schema);
      return fitted(object, served);
    },
    isServed: (object) =>
      isSame &&
      object.apiVersion === apiVersionOf({ group, version: stored.name }) &&
      conforms(object as unknown as JsonObject, stored.schema),
  };
}

/** Returns the stored object in the served version. The stored object is not modified. */
export function asServed(conversion: Conversion, object: KubeObject): KubeObject {
  return conversion.isServed?.(object) === true ? object : conversion.fromStored(cloneJson(object));
}

/** Returns the function that reads a stored object with the defaults of the version in which it was stored. */
export function storedReader(group: string, versions: readonly VersionSchema[]): (object: KubeObject) => KubeObject {
  const readers = new Map(
    versions.map((version) => [
      apiVersionOf({ group, version: version.name }),
      renamingConversion(group, version, version),
    ]),
  );
  return (object) => {
    const reader = readers.get(object.apiVersion ?? '');
    return reader === undefined ? object : asServed(reader, object);
  };
}
