/** Provides the built-in resources and their subresources in the order of discovery, from the generated `resources.json`. */
import { readFileSync } from 'node:fs';
import type { ResourceInfo } from './schema.ts';

let resources: readonly ResourceInfo[] | undefined;

/** Whether objects of a resource are stored. */
export function isStored({ group, resource, verbs }: ResourceInfo): boolean {
  return verbs.includes('list') && resource !== 'componentstatuses' && group !== 'events.k8s.io';
}

/** Returns the resources. They are parsed once for each process, shared, and never modified. */
export function builtinResources(): readonly ResourceInfo[] {
  resources ??= JSON.parse(readFileSync(new URL('resources.json', import.meta.url), 'utf8')) as ResourceInfo[];
  return resources;
}
