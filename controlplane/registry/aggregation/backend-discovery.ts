/**
 * Reads the discovery of an aggregated server as rows like those of the catalog. The rows become part of the discovery of the
 * whole cluster, which every client reads. So a server is refused if its response has other types or is larger than any real
 * group.
 */
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import type { ResourceInfo, SubresourceInfo } from '../../../api/schema/schema.ts';

/** The maximum number of resources and subresources of a version. */
const MAX_RESOURCES = 1000;
/** The maximum number of verbs, short names or categories of a resource. */
const MAX_WORDS = 50;
/** The maximum number of characters of a text of a resource, such as a verb or a short name. */
const LONGEST_WORD = 253;

type Listed = Readonly<Record<string, unknown>>;

/** Converts an `APIResourceList` to rows; throws if it is invalid or too large. */
export function rowsOf(group: string, version: string, list: unknown): ResourceInfo[] {
  const resources = isJsonObject(list) ? list['resources'] : undefined;
  if (!Array.isArray(resources)) throw new Error('the response is no list of resources');
  if (resources.length > MAX_RESOURCES)
    throw new Error(`the response has ${resources.length} resources; at most ${MAX_RESOURCES} are read`);
  const rows: ResourceInfo[] = [];
  const subresources = new Map<string, SubresourceInfo[]>();
  for (const one of resources as readonly unknown[]) {
    if (!isJsonObject(one)) throw new Error('a resource of the response is not an object');
    const name = wordOf(one, 'name');
    const slash = name.indexOf('/');
    if (slash > 0) {
      const parent = name.slice(0, slash);
      const siblings = subresources.get(parent) ?? [];
      subresources.set(parent, siblings);
      siblings.push({
        name: name.slice(slash + 1),
        group: wordOf(one, 'group', group),
        version: wordOf(one, 'version', version),
        kind: wordOf(one, 'kind'),
        verbs: wordsOf(one, 'verbs'),
      });
    } else if (slash < 0 && name !== '') rows.push(rowOf(group, version, one, name));
  }
  return rows.map((row) => ({ ...row, subresources: subresources.get(row.resource) ?? [] }));
}

function rowOf(group: string, version: string, listed: Listed, resource: string): ResourceInfo {
  const kind = wordOf(listed, 'kind');
  return {
    group,
    version,
    resource,
    kind,
    singular: wordOf(listed, 'singularName'),
    shortNames: wordsOf(listed, 'shortNames'),
    categories: wordsOf(listed, 'categories'),
    namespaced: listed['namespaced'] === true,
    verbs: wordsOf(listed, 'verbs'),
    subresources: [],
    custom: { listKind: `${kind}List`, deprecation: '' },
  };
}

/** Returns how errors name a resource: by its name, if that is a text of the allowed length. */
function shownName({ name }: Listed): string {
  return typeof name === 'string' && name.length <= LONGEST_WORD ? `resource ${quoteText(name)}` : 'a resource';
}

/** Reads a text, which is `otherwise` if it is absent. Throws an error that names the resource and the field. */
function wordOf(listed: Listed, field: string, otherwise = ''): string {
  const value = listed[field] ?? otherwise;
  if (typeof value !== 'string' || value.length > LONGEST_WORD)
    throw new Error(`the ${field} of ${shownName(listed)} is not a text of at most ${LONGEST_WORD} characters`);
  return value;
}

/**
 * Reads a list of texts. Servers in Go send an empty list as `null`. Throws an error that names the resource and the field if
 * the value is no list, or has too many texts or too long ones.
 */
function wordsOf(listed: Listed, field: string): readonly string[] {
  const value = listed[field] ?? [];
  const isList = (one: unknown): one is readonly string[] =>
    Array.isArray(one) && one.every((word) => typeof word === 'string' && word.length <= LONGEST_WORD);
  if (!isList(value) || value.length > MAX_WORDS)
    throw new Error(
      `the ${field} of ${shownName(listed)} are not a list of at most ${MAX_WORDS} texts of ${LONGEST_WORD} characters`,
    );
  return value;
}
