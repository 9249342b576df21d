/** Maps a custom resource to its Scale. The definition contains the paths of the replicas and the selector. */
import { quoteText } from '../../../api/meta/quote.ts';
import { FieldError, invalid } from '../../../api/meta/field-error.ts';
import { goType, goValue } from '../../../api/meta/go-text.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonObject, JsonValue, KubeObject } from '../../../api/meta/object.ts';
import { ownMember, setMember } from '../../../api/meta/own-member.ts';
import { newBadRequest, newInternalError } from '../../../api/meta/status-error.ts';
import { newScale, type Scale, type ScaleView } from '../scale-view.ts';
import type { ScaleSubresource } from '../kinds/apiextensions/definition.ts';
import { findAll, parseJsonPath } from '../schemas/json-path.ts';
import { INT32_MAX } from '../../../api/meta/integers.ts';

function valueAt(object: KubeObject, path: string): JsonValue | undefined {
  return findAll(object as unknown as JsonValue, parseJsonPath(path) ?? [])[0];
}

/** The value for an object that has no replicas yet. */
const UNSET = -2_147_483_648;

/**
 * Returns the view of the subresource `scale` by the paths of a validated definition. A read of an object without a number at
 * `specReplicasPath` throws a 500, and a write that leaves it unset throws a 400, as in kube-apiserver.
 */
export function customScale(scale: ScaleSubresource): ScaleView {
  const path = quoteText(scale.specReplicasPath);
  return {
    replicasPath: namesOf(scale.specReplicasPath),
    scaleOf(object) {
      const replicas = valueAt(object, scale.specReplicasPath);
      if (typeof replicas !== 'number') throw newInternalError(`the spec replicas field ${path} does not exist`);
      return scaleWith(object, scale, replicas);
    },
    scaleBefore(object) {
      const replicas = valueAt(object, scale.specReplicasPath);
      return scaleWith(object, scale, typeof replicas === 'number' ? replicas : UNSET);
    },
    setReplicas(object, replicas) {
      if (replicas === UNSET) throw newBadRequest(`the spec replicas field ${path} cannot be empty`);
      setAt(object as unknown as JsonObject, scale.specReplicasPath, replicas);
    },
    // Validation errors of the replicas refer to the custom object.
    errorsOf: () => [],
  };
}

function scaleWith(object: KubeObject, scale: ScaleSubresource, replicas: number): Scale {
  const current = valueAt(object, scale.statusReplicasPath);
  const selector = scale.labelSelectorPath ? valueAt(object, scale.labelSelectorPath) : undefined;
  return newScale(object, {
    desired: replicas,
    current: typeof current === 'number' ? current : 0,
    selector: typeof selector === 'string' ? selector : '',
  });
}

/** Returns the names of a path such as `.spec.replicas`. */
const namesOf = (path: string): string[] => path.split('.').slice(1);

/** Sets the value at a path of names. Creates the objects on the path that are missing. */
function setAt(object: JsonObject, path: string, value: JsonValue): void {
  const names = namesOf(path);
  let inner = object;
  for (const name of names.slice(0, -1)) {
    let next = ownMember(inner, name);
    if (!isJsonObject(next)) {
      next = {};
      setMember(inner, name, next);
    }
    inner = next;
  }
  setMember(inner, names.at(-1) ?? '', value);
}

/**
 * Validates that replicas are integers from 0 to the largest int32, and that the selector is a text. With
 * `statusOnly`, the desired replicas are not validated. The messages are those of kube-apiserver's accessors.
 */
export function validateScaleFields(
  object: KubeObject,
  scale: ScaleSubresource,
  { statusOnly = false }: { readonly statusOnly?: boolean } = {},
): FieldError[] {
  const paths = statusOnly ? [scale.statusReplicasPath] : [scale.specReplicasPath, scale.statusReplicasPath];
  const errors = paths.flatMap((path) => {
    const value = nested(object, path, 'int64');
    if (value instanceof FieldError) return [value];
    if (typeof value !== 'number' && typeof value !== 'bigint') return [];
    if (value < 0) return [invalid(path, value, 'should be a non-negative integer')];
    return value > INT32_MAX ? [invalid(path, value, `should be less than or equal to ${INT32_MAX}`)] : [];
  });
  const selector = scale.labelSelectorPath ? nested(object, scale.labelSelectorPath, 'string') : undefined;
  return selector instanceof FieldError ? [...errors, selector] : errors;
}

/** Returns the value at a path of names, `undefined` if there is none, or the error of a value of another type. */
function nested(object: KubeObject, path: string, type: 'int64' | 'string'): JsonValue | undefined | FieldError {
  const names = namesOf(path);
  const wrong = (at: string, value: JsonValue, expected: string): FieldError =>
    invalid(
      path,
      type === 'int64' ? 0 : '',
      `${at} accessor error: ${goValue(value)} is of the type ${goType(value)}, expected ${expected}`,
    );
  let value = object as unknown as JsonValue;
  for (const [at, name] of names.entries()) {
    if (value === null) return undefined;
    if (!isJsonObject(value)) return wrong(`.${names.slice(0, at + 1).join('.')}`, value, 'map[string]interface{}');
    const member = ownMember(value, name);
    if (member === undefined) return undefined;
    value = member;
  }
  return goType(value) === type ? value : wrong(`.${names.join('.')}`, value, type);
}
