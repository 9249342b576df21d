/**
 * The built-in resources with their subresources, in the order of discovery, read from the generated `resources.json`.
 * The registry makes its rows from them; nothing else says which paths are served.
 */
import { readFileSync } from 'node:fs';
import type { ResourceInfo } from './schema.ts';

let resources: readonly ResourceInfo[] | undefined;

/** Parsed once a process; shared, never changed. */
export function builtinResources(): readonly ResourceInfo[] {
  resources ??= JSON.parse(readFileSync(new URL('resources.json', import.meta.url), 'utf8')) as ResourceInfo[];
  return resources;
}
