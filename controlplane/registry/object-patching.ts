/** Applies JSON, merge and strategic merge patches to an object. */
import { jsonPatchSteps, pointerNames } from '../../api/codec/json-patch.ts';
import { duplicateErrors } from '../../api/codec/duplicates.ts';
import { applyMergePatch } from '../../api/codec/merge-patch.ts';
import { goText } from '../../api/codec/strategic-merge-order.ts';
import { applyStrategicMergePatch } from '../../api/codec/strategic-merge-patch.ts';
import type { JsonObject, JsonValue, KubeObject } from '../../api/meta/object.ts';
import { unknownFieldErrors } from '../../api/schema/decode.ts';
import type { ExpectedKind, PatchedObject } from './object-decoding.ts';
import type { Pausing } from '../../api/machinery/pausing.ts';
import { patchedText, visitedByMerge, visitedByOperations } from './patched-text.ts';
import type { Patch } from '../model/rest.ts';

type PlainPatch = Exclude<Patch, { type: 'apply' }>;

/**
 * Applies a patch. A JSON patch pauses between its steps. `object` is not modified. Throws kube-apiserver's error for a patch
 * that does not apply.
 */
export function* patchObject(object: KubeObject, patch: PlainPatch, expected: ExpectedKind): Pausing<PatchedObject> {
  if (patch.fault !== undefined) throw patch.fault;
  const document = object as unknown as JsonObject;
  switch (patch.type) {
    case 'json': {
      const value = yield* jsonPatchSteps(document, patch.body);
      const faults = () => operationFaults(patch.body, patch.duplicates);
      const decimals = decimalsOfOperations(patch.body, patch.decimals);
      const shown = () => patchedText(value, expected.struct, visitedByOperations(patch.body as readonly JsonObject[]));
      return { value, duplicates: [], faults, decimals, shown };
    }
    case 'merge': {
      const value = applyMergePatch(document, patch.body);
      const shown = () => patchedText(value, expected.struct, visitedByMerge(patch.body as JsonValue));
      return { value, duplicates: patch.duplicates, decimals: patch.decimals, shown };
    }
    case 'strategic': {
      const { value, patch: remaining } = applyStrategicMergePatch(document, patch.body, expected.struct);
      const shown = () => goText(remaining);
      return { value, duplicates: patch.duplicates, isConversion: true, shown };
    }
  }
}

/** Returns the literals in the values of operations by the paths that the operations name, or `undefined` without literals. */
function decimalsOfOperations(
  operations: unknown,
  decimals: ReadonlyMap<string, string> | undefined,
): ReadonlyMap<string, string> | undefined {
  if (decimals === undefined) return undefined;
  const byPath = new Map<string, string>();
  for (const [place, literal] of decimals) {
    const [, index = '', suffix = ''] = /^\[(\d+)\]\.value(.*)$/s.exec(place) ?? [];
    const pointer = (operations as readonly JsonObject[])[Number(index)]?.['path'];
    if (index !== '' && typeof pointer === 'string') byPath.set(`${placeOf(pointer)}${suffix}`, literal);
  }
  return byPath;
}

/** Returns the path of a JSON pointer: `/spec/ports/0/port` is `spec.ports[0].port`. */
function placeOf(pointer: string): string {
  return pointerNames(pointer)
    .map((name, at) => (/^\d+$/.test(name) ? `[${name}]` : at === 0 ? name : `.${name}`))
    .join('');
}

const OPERATION_MEMBERS: ReadonlySet<string> = new Set(['op', 'path', 'from', 'value']);

/** Returns the results of field validation for the operations of a JSON patch. */
function operationFaults(operations: unknown, duplicates: readonly string[]): string[] {
  const unknown = (operations as readonly JsonObject[]).flatMap((operation, index) =>
    Object.keys(operation)
      .filter((member) => !OPERATION_MEMBERS.has(member))
      .map((member) => `[${index}].${member}`),
  );
  return [...duplicateErrors(duplicates), ...unknownFieldErrors(unknown)].map((text) => `json patch ${text}`);
}
