/** Checks for `orchlet doctor` whether the manifests in the folders of this host's control plane can be read and parsed. */
import { join } from 'node:path';
import { parseYaml } from '../../api/codec/yaml.ts';
import { readDocuments } from '../../controlplane/controllers/manifests/manifest-documents.ts';
import {
  type ManifestSource,
  readSource,
  scanFolder,
} from '../../controlplane/controllers/manifests/manifest-folder.ts';
import { controlPlaneFlags } from '../../controlplane/options/controlplane-options.ts';
import type { Finding } from './host-checks.ts';

const NAME = 'manifests';

/** Returns one finding for each folder that exists. Changes nothing and does not call kubectl. */
export async function checkManifests(
  dataDirectory: string,
  others: readonly string[] = controlPlaneFlags.manifestsDir.default,
): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const folder of [join(dataDirectory, 'manifests'), ...others]) {
    const { sources, faults, isComplete } = await scanFolder(folder);
    if (!isComplete && faults.size === 0) continue;
    const found = [...faults].map(([path, message]) => `${path}: ${message}`);
    for (const source of sources) found.push(...(await faultsOf(source)));
    const [first] = found;
    if (first === undefined) findings.push({ name: NAME, verdict: 'ok', text: `${sources.length} in ${folder}` });
    else {
      const more = found.length === 1 ? '' : ` (and ${found.length - 1} more)`;
      findings.push({ name: NAME, verdict: 'warn', text: `${first}${more}`, remedy: 'mend or remove what is named' });
    }
  }
  return findings;
}

async function faultsOf(source: ManifestSource): Promise<readonly string[]> {
  const { path, isKustomization, isSkipped } = source;
  if (isKustomization || isSkipped) return [];
  // A file that changes right now is no fault.
  const content = await readSource(source);
  if (content === undefined) return [];
  const { faults } = await readDocuments(content, {
    isJson: path.endsWith('.json'),
    yaml: { first: (text) => parseYaml(text) },
    turn: () => undefined,
  });
  return faults.map(({ line, message }) => `${path}${line === 0 ? '' : `, line ${line}`}: ${message}`);
}
