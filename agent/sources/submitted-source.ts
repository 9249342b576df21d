/**
 * Reports the pods that were submitted to the agent's own server. Each is stored as a manifest in a directory below the root
 * directory and survives a restart. Writes are atomic, and like removals they survive a power failure.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { YamlParser } from '../../api/codec/yaml-thread.ts';
import type { Logger } from '../../api/component/logger.ts';
import { type Clock, whenAborted } from '../../api/machinery/clock.ts';
import { makeFolder, removeFile, replaceFile } from '../../api/machinery/replace-file.ts';
import { newBadRequest, newNotFound } from '../../api/meta/status-error.ts';
import { readRegularFile } from '../base/files/regular-file.ts';
import type { Pod } from '../base/model/pod.ts';
import type { PodSource } from './pod-source.ts';
import { ManifestError, type PodReader, readManifest } from './static-pod.ts';

/** The source with the operations of the routes that fill it. */
export interface SubmittedPods extends PodSource {
  /** Stores the manifest of one pod and runs the pod. Replaces a pod of the same namespace and name. Throws `StatusError`s. */
  submit(manifest: Buffer): Promise<Pod>;
  list(): readonly Pod[];
  /** Deletes the stored manifest and terminates the pod. Throws NotFound for a pod that was not submitted. */
  remove(namespace: string, name: string): Promise<void>;
}

interface SubmittedPodsOptions {
  /** The directory in which submitted pods are kept: `<root-dir>/submitted-pods`. */
  readonly directory: string;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly yaml: YamlParser;
  readonly reader: PodReader;
}

/** The maximum size of a stored manifest. The server of the agent accepts only smaller ones. */
const MAX_MANIFEST_BYTES = 16 * 1024 * 1024;

/** Reads the stored manifests when it runs; one that is not valid any more is logged and skipped. */
export function createSubmittedPods(options: SubmittedPodsOptions): SubmittedPods {
  const pods = new Map<string, Pod>();
  let notify: (all: readonly Pod[]) => void = () => undefined;
  const fileOf = (namespace: string, name: string): string => join(options.directory, `${namespace}_${name}.yaml`);
  const read = async (text: Buffer, origin: string): Promise<Pod> => {
    const { nodeName, yaml, reader } = options;
    const { pods: found } = await readManifest(text, { source: 'submitted', origin, nodeName, yaml, reader });
    const [pod] = found;
    if (pod === undefined || found.length !== 1)
      throw new ManifestError(`${origin}: one pod is expected, not ${found.length}`);
    return pod;
  };
  const keyOf = (pod: Pod): string => `${pod.metadata.namespace}_${pod.metadata.name}`;
  return {
    name: 'submitted',
    async run(signal, onPods) {
      notify = onPods;
      await makeFolder(options.directory, 0o700);
      for (const name of (await readdir(options.directory)).filter((entry) => entry.endsWith('.yaml'))) {
        const file = join(options.directory, name);
        try {
          const pod = await read(await readRegularFile(file, MAX_MANIFEST_BYTES), file);
          pods.set(keyOf(pod), pod);
        } catch (error) {
          options.logger.error({ file, err: error }, 'Cannot read a stored pod, ignoring it');
        }
      }
      onPods([...pods.values()]);
      await whenAborted(signal);
    },
    async submit(manifest) {
      let stored: Pod;
      let file: string;
      try {
        const pod = await read(manifest, 'the submitted manifest');
        file = fileOf(pod.metadata.namespace, pod.metadata.name);
        // The uid depends on the origin too. With that of the stored file it is the same after a restart.
        stored = await read(manifest, file);
      } catch (error) {
        if (error instanceof ManifestError) throw newBadRequest(error.message);
        throw error;
      }
      await makeFolder(options.directory, 0o700);
      await replaceFile(file, manifest, { mode: 0o600 });
      pods.set(keyOf(stored), stored);
      notify([...pods.values()]);
      return stored;
    },
    list: () => [...pods.values()],
    async remove(namespace, name) {
      const key = `${namespace}_${name}`;
      if (!pods.has(key)) throw newNotFound({ group: '', resource: 'pods' }, name);
      await removeFile(fileOf(namespace, name));
      pods.delete(key);
      notify([...pods.values()]);
    },
  };
}
