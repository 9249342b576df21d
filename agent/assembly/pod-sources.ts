/**
 * Creates the sources of pods from the options: the API server, a file or directory, a URL, and pods submitted to the agent's
 * server.
 */
import { join, resolve } from 'node:path';
import { createYamlThread } from '../../api/codec/yaml-thread.ts';
import type { HttpClient } from '../../api/client/http-client.ts';
import type { PodCheckpoints } from '../pods/checkpoints/pod-checkpoints.ts';
import { splitHeader } from '../options/json-forms.ts';
import { createPodReader } from '../sources/pod-reader.ts';
import { createApiSource } from '../sources/api-source.ts';
import { createFileSource } from '../sources/file-source.ts';
import type { PodSource } from '../sources/pod-source.ts';
import { StaticObjects } from '../sources/static-objects.ts';
import { createSubmittedPods, type SubmittedPods } from '../sources/submitted-source.ts';
import { createUrlSource } from '../sources/url-source.ts';
import type { Base } from './base.ts';

/** Returns the enabled sources. `submitted` is undefined unless the agent's server accepts pods. */
export function podSources(
  base: Base,
  client: HttpClient | undefined,
  checkpoints: PodCheckpoints | undefined,
  callbacks: {
    readonly onBadManifest: (file: string, message: string) => void;
    readonly nodeSynced: () => Promise<void>;
  },
): {
  readonly sources: readonly PodSource[];
  readonly submitted: SubmittedPods | undefined;
  readonly statics: StaticObjects;
} {
  const { flags, clock, logger, nodeName, rootDirectory } = base;
  const { onBadManifest, nodeSynced } = callbacks;
  const reader = createPodReader();
  const shared = { nodeName, clock, logger, yaml: createYamlThread({ clock }), reader };
  const submitted = flags.enablePodManifestsHandler
    ? createSubmittedPods({ directory: join(rootDirectory, 'submitted-pods'), ...shared })
    : undefined;
  const statics = new StaticObjects();
  const sources: PodSource[] = submitted === undefined ? [] : [submitted];
  if (flags.podManifestPath !== '')
    sources.push(
      createFileSource({
        path: resolve(flags.podManifestPath),
        checkMs: flags.fileCheckFrequency,
        onBadManifest,
        statics,
        ...shared,
      }),
    );
  if (flags.manifestUrl !== '') {
    const headers: Record<string, string> = {};
    for (const { name, text } of flags.manifestUrlHeader.map(splitHeader))
      headers[name] = headers[name] === undefined ? text : `${headers[name]}, ${text}`;
    sources.push(createUrlSource({ url: flags.manifestUrl, headers, checkMs: flags.httpCheckFrequency, ...shared }));
  }
  if (client !== undefined) {
    const remembered = checkpoints === undefined ? {} : { checkpoints };
    sources.push(createApiSource({ client, nodeName, clock, logger, nodeSynced, ...remembered }));
  }
  return { sources, submitted, statics };
}
