/** Starts the application of manifests, with a user of its own. */
import { randomUUID } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { createYamlThread } from '../../api/codec/yaml-thread.ts';
import { replaceFile } from '../../api/machinery/replace-file.ts';
import { CoreEventRecorder } from '../../api/client/event-recorder.ts';
import type { Audit } from '../server/audit/audit.ts';
import { auditedClient } from '../server/audit/audited-client.ts';
import { startManifests } from '../controllers/manifests/manifests.ts';
import { isPartEnabled } from '../options/parts.ts';
import type { Parts } from './parts.ts';
import { AUTHENTICATED_GROUP, MASTERS_GROUP } from '../../api/meta/system-users.ts';

/** The folder of static pods: the value of `--pod-manifest-path` of the node agent in the units of systemd. */
const STATIC_POD_FOLDER = '/etc/orchlet/manifests';
const USER = 'orchlet:manifests';
const FIELD_MANAGER = 'orchlet-manifests';

/**
 * Starts to apply the manifests of the folders. Does nothing if the part is disabled. A folder that cannot be created is
 * logged.
 */
export async function startManifestsLoop(
  { flags, directory, clock, turns, logger, clients, registry, onClose }: Parts,
  audit: Audit | undefined,
): Promise<void> {
  if (!isPartEnabled(flags, 'manifests')) return;
  const log = logger.child({ component: 'manifests' });
  const ownFolder = join(directory, 'manifests');
  await mkdir(ownFolder, { recursive: true, mode: 0o700 }).catch((error: unknown) => {
    log.warn({ err: error, path: ownFolder }, 'The folder of manifests could not be created');
  });
  const direct = clients.as(USER, { groups: [MASTERS_GROUP], fieldManager: FIELD_MANAGER });
  const user = { name: USER, groups: [MASTERS_GROUP, AUTHENTICATED_GROUP] };
  // A user who writes a manifest writes to the cluster.
  const client = audit === undefined ? direct : auditedClient(direct, { audit, user, userAgent: FIELD_MANAGER });
  const manifests = startManifests({
    folders: [...new Set([ownFolder, ...flags.manifestsDir.map((path) => resolve(path))])],
    staticPodFolder: STATIC_POD_FOLDER,
    installation: await installationOf(directory),
    client,
    catalog: registry.catalog,
    clock,
    turns,
    yaml: createYamlThread({ clock }),
    logger: log,
    recorder: new CoreEventRecorder({ client: direct, clock, logger: log, component: 'manifests' }),
  });
  onClose(() => manifests.close());
}

/**
 * Resolves to the identity of the data directory, which no backup contains, and creates it if it is missing. If the disk is
 * full, the new identity lasts until the process exits.
 */
async function installationOf(directory: string): Promise<string> {
  const path = join(directory, 'installation');
  const stored = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  if (/^[0-9a-f-]{36}$/.test(stored)) return stored;
  const created = randomUUID();
  await replaceFile(path, created, { mode: 0o600 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOSPC' && error.code !== 'EDQUOT') throw error;
  });
  return created;
}
