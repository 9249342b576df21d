/**
 * Merges an applied value into the live value: members merge, keyed lists and sets merge by item, and all other values are
 * replaced. Neither argument is modified.
 */
import { setMember } from '../../meta/own-member.ts';
import { isJsonObject } from '../../meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../meta/object.ts';
import { type MergeType, deduce, deduced, itemElement } from './merge-types.ts';

type ListType = Extract<MergeType, { kind: 'keyed' | 'set' }>;

/**
 * Returns the merged value, which shares parts with both arguments, or `undefined` if both are absent. Throws
 * `PathElementError` for lists whose items have no keys.
 */
export function merge(
  type: MergeType,
  live: JsonValue | undefined,
  applied: JsonValue | undefined,
): JsonValue | undefined {
  if (applied === undefined) return live;
  if (live === undefined) return applied;
  switch (type.kind) {
    case 'leaf':
      return applied;
    case 'deduced': {
      const appliedType = deduce(applied);
      return deduce(live).kind === appliedType.kind ? merge(appliedType, live, applied) : applied;
    }
    case 'keyed':
    case 'set':
      if (!Array.isArray(live) || !Array.isArray(applied)) return keepContent(live, applied);
      return live.length === 0 && applied.length === 0 ? applied : mergeItems(type, live, applied);
    case 'map':
    case 'struct':
      return isJsonObject(live) && isJsonObject(applied)
        ? mergeMembers(type, live, applied)
        : keepContent(live, applied);
  }
}

/**
 * Returns the applied value, but the live one if null is applied to a list or an object that is not empty: null removes no
 * content.
 */
function keepContent(live: JsonValue, applied: JsonValue): JsonValue {
  if (applied !== null) return applied;
  const hasContent = Array.isArray(live) ? live.length > 0 : isJsonObject(live) && Object.keys(live).length > 0;
  return hasContent ? live : applied;
}

function mergeMembers(
  type: Extract<MergeType, { kind: 'map' | 'struct' }>,
  live: JsonObject,
  applied: JsonObject,
): JsonObject {
  const merged: JsonObject = {};
  for (const name of new Set([...Object.keys(live), ...Object.keys(applied)])) {
    const inner = type.kind === 'map' ? type.values : (type.members.get(name)?.type ?? type.others ?? deduced);
    const value = merge(inner, memberOf(live, name), memberOf(applied, name));
    if (value !== undefined) setMember(merged, name, value);
  }
  return merged;
}

const memberOf = (object: JsonObject, name: string): JsonValue | undefined =>
  Object.hasOwn(object, name) ? object[name] : undefined;

interface Indexed {
  readonly elements: readonly string[];
  /** The value is undefined for elements that occur more than once. */
  readonly items: ReadonlyMap<string, JsonValue | undefined>;
}

function index(type: ListType, list: readonly JsonValue[]): Indexed {
  const elements = list.map((item) => itemElement(type, item));
  const items = new Map<string, JsonValue | undefined>();
  elements.forEach((element, at) => items.set(element, items.has(element) ? undefined : list[at]));
  return { elements, items };
}

/** Merges the items of two lists, in the order of both where they agree. */
function mergeItems(type: ListType, live: readonly JsonValue[], applied: readonly JsonValue[]): JsonValue[] {
  const indexedLive = index(type, live);
  const indexedApplied = index(type, applied);
  const shared = indexedApplied.elements.filter((element) => indexedLive.items.has(element));
  const merged: JsonValue[] = [];
  const mergedElements = new Set<string>();
  let nextShared = 0;
  let nextLive = 0;
  let nextApplied = 0;
  const pushMerged = (liveItem: JsonValue | undefined, appliedItem: JsonValue | undefined): void => {
    const item = merge(type.items, liveItem, appliedItem);
    if (item !== undefined) merged.push(item);
  };
  while (nextLive < indexedLive.elements.length || nextApplied < indexedApplied.elements.length) {
    const liveElement = indexedLive.elements[nextLive];
    const appliedElement = indexedApplied.elements[nextApplied];
    if (liveElement !== undefined && appliedElement !== undefined) {
      if (liveElement === appliedElement) {
        mergedElements.add(liveElement);
        pushMerged(indexedLive.items.get(liveElement), indexedApplied.items.get(liveElement));
        nextLive++;
        nextApplied++;
        nextShared++;
        continue;
      }
      const nextSharedElement = shared[nextShared];
      if (
        indexedApplied.items.has(liveElement) &&
        nextSharedElement !== undefined &&
        nextSharedElement !== liveElement
      ) {
        nextLive++;
        continue;
      }
    }
    if (liveElement !== undefined) {
      if (!indexedApplied.items.has(liveElement)) {
        pushMerged(live[nextLive], undefined);
        nextLive++;
        continue;
      }
      if (mergedElements.has(liveElement)) nextLive++;
    }
    if (appliedElement !== undefined) {
      mergedElements.add(appliedElement);
      pushMerged(indexedLive.items.get(appliedElement), indexedApplied.items.get(appliedElement));
      nextApplied++;
      if (shared[nextShared] === appliedElement) nextShared++;
    }
  }
  return merged;
}
