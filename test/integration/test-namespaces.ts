/**
 * Names network namespaces and cgroups of tests, and removes those that killed tests have left: the names contain the id of
 * the process. `service-rules.test.ts` and others that make namespaces get their prefix here, before the first namespace.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { isDead } from '../dead-process.ts';

const NAMESPACES = '/run/netns';
const INTERFACES = '/sys/class/net';
const NAME = /^orc[a-z]+(\d+)/;

const leftIn = (folder: string): string[] =>
  existsSync(folder) ? readdirSync(folder).filter((name) => isDead(NAME.exec(name)?.[1])) : [];

/** Removes the cgroups of killed tests, in the hierarchy of each controller or in the only one. */
function removeCgroups(): void {
  for (const hierarchy of globSync(['/sys/fs/cgroup', '/sys/fs/cgroup/*/']))
    for (const name of leftIn(hierarchy))
      spawnSync('find', [join(hierarchy, name), '-depth', '-type', 'd', '-exec', 'rmdir', '{}', ';']);
}

/** Returns the beginning of the names of this process. `letter` says which test it is. */
export function namespacePrefix(letter: string): string {
  for (const name of leftIn(NAMESPACES)) spawnSync('ip', ['netns', 'delete', name]);
  // The other end of a virtual cable is in a namespace, and lives on with a program that still runs there.
  for (const name of leftIn(INTERFACES)) spawnSync('ip', ['link', 'delete', name]);
  removeCgroups();
  return `orc${letter}${process.pid}`;
}
