/** Returns warnings about volumes of a pod that are valid but probably unintended, such as deprecated kinds. */
import { milliUnits, parseQuantity } from '../meta/quantity.ts';
import { quoteText } from '../meta/quote.ts';
import type { PodSpec, Volume } from './pod-types.ts';
import { INT64_MAX } from '../meta/integers.ts';

/** The deprecated sources of volumes. A valid volume has one source. */
const DEPRECATED: ReadonlyMap<string, string> = new Map([
  ['photonPersistentDisk', 'deprecated in v1.11, non-functional in v1.16+'],
  ['gitRepo', 'deprecated in v1.11, and disabled by default in v1.33+'],
  ['scaleIO', 'deprecated in v1.16, non-functional in v1.22+'],
  ['flocker', 'deprecated in v1.22, non-functional in v1.25+'],
  ['storageos', 'deprecated in v1.22, non-functional in v1.25+'],
  ['quobyte', 'deprecated in v1.22, non-functional in v1.25+'],
  ['glusterfs', 'deprecated in v1.25, non-functional in v1.26+'],
  ['cephfs', 'deprecated in v1.28, non-functional in v1.31+'],
  ['rbd', 'deprecated in v1.28, non-functional in v1.31+'],
]);

/** Returns the warnings about the volumes of a pod. `at` is the path of its spec. */
export function volumeWarnings(spec: PodSpec, at: string): string[] {
  const texts: string[] = [];
  for (const [index, volume] of (spec.volumes ?? []).entries()) {
    const volumePath = `${at}.volumes[${index}]`;
    for (const [source, value] of Object.entries(volume)) {
      const text = value === undefined ? undefined : DEPRECATED.get(source);
      if (text !== undefined) texts.push(`${volumePath}.${source === 'storageos' ? 'storageOS' : source}: ${text}`);
    }
    const claim = volume.ephemeral?.volumeClaimTemplate;
    if (claim !== undefined)
      texts.push(...claimWarnings(claim.spec, `${volumePath}.ephemeral.volumeClaimTemplate.spec`));
  }
  return [...texts, ...(spec.volumes ?? []).flatMap(overlapWarnings)];
}

interface SizedClaim {
  readonly resources?:
    | {
        readonly requests?: Readonly<Record<string, string | undefined>> | undefined;
        readonly limits?: Readonly<Record<string, string | undefined>> | undefined;
      }
    | undefined;
}

/** Returns warnings about sizes of a claim that are not whole bytes. */
export function claimWarnings(spec: SizedClaim | undefined, at: string): string[] {
  return (['requests', 'limits'] as const).flatMap((kind) => {
    const size = spec?.resources?.[kind]?.['storage'];
    return size === undefined ? [] : fractionWarning(size, `${at}.resources.${kind}[storage]`);
  });
}

/**
 * The maximum number of thousandths, which are 64-bit numbers in Kubernetes. A larger amount saturates, so it counts as
 * fractional.
 */
const MAX_THOUSANDTHS = INT64_MAX;

/** Returns warnings about an amount of bytes that is not whole. */
export function fractionWarning(value: string, field: string): string[] {
  const thousandths = milliUnits(parseQuantity(value));
  if (thousandths % 1000n === 0n && thousandths <= MAX_THOUSANDTHS) return [];
  return [`${field}: fractional byte value ${quoteText(value)} is invalid, must be an integer`];
}

/** The path of a file in a volume. `source` describes where the file comes from, in volumes of several sources. */
interface FilePath {
  readonly path: string;
  readonly source: string;
}

type Items = readonly { readonly path?: string | undefined }[] | undefined;

const filesOf = (items: Items, source = ''): FilePath[] => (items ?? []).map(({ path = '' }) => ({ path, source }));

function overlapWarnings({ name = '', configMap, secret, downwardAPI, projected }: Volume): string[] {
  const texts: string[] = [];
  const check = (description: string, files: readonly FilePath[]): void => {
    for (const text of overlaps(files))
      texts.push(`volume ${quoteText(name)} (${description}): overlapping paths: ${text}`);
  };
  if (configMap?.items) check(`ConfigMap ${quoteText(configMap.name ?? '')}`, filesOf(configMap.items));
  if (secret?.items) check(`Secret ${quoteText(secret.secretName ?? '')}`, filesOf(secret.items));
  if (downwardAPI?.items) check('DownwardAPI', filesOf(downwardAPI.items));
  const sources = projected?.sources ?? [];
  for (const source of sources)
    if (Object.keys(source).length === 0) texts.push(`volume ${quoteText(name)} (Projected) has no sources provided`);
  if (sources.length > 0) check('Projected', sources.flatMap(projectedFiles));
  return texts;
}

type Projection = NonNullable<NonNullable<NonNullable<Volume['projected']>['sources']>[number]>;

function projectedFiles(projection: Projection): FilePath[] {
  const { configMap, secret, downwardAPI, serviceAccountToken, clusterTrustBundle, podCertificate } = projection;
  if (configMap?.items !== undefined) return filesOf(configMap.items, `ConfigMap ${quoteText(configMap.name ?? '')}`);
  if (secret?.items !== undefined) return filesOf(secret.items, `Secret ${quoteText(secret.name ?? '')}`);
  if (downwardAPI?.items !== undefined) return filesOf(downwardAPI.items, 'DownwardAPI');
  if (serviceAccountToken !== undefined) return filesOf([serviceAccountToken], 'ServiceAccountToken');
  if (clusterTrustBundle !== undefined) {
    const { name, signerName = '' } = clusterTrustBundle;
    return filesOf([clusterTrustBundle], `ClusterTrustBundle ${quoteText(name ?? signerName)}`);
  }
  return [
    { path: podCertificate?.certificateChainPath ?? '', source: 'PodCertificate chain' },
    { path: podCertificate?.keyPath ?? '', source: 'PodCertificate key' },
    { path: podCertificate?.credentialBundlePath ?? '', source: 'PodCertificate credential bundle' },
  ];
}

/** A file with its place among the files of the volume. */
interface SeenFile extends FilePath {
  readonly at: number;
}

/** A folder or file of the volume. */
interface PathNode {
  readonly children: Map<string, PathNode>;
  /** The files with this path. */
  readonly files: SeenFile[];
  /** The files with this path, and below it. */
  readonly within: SeenFile[];
}

/** The maximum number of overlaps that are reported for one volume. */
const MAX_OVERLAPS = 100;

/** Whether all files are at the top of the volume and have different names, as in the volumes of service accounts. */
const areDistinctNames = (files: readonly FilePath[]): boolean =>
  files.every(({ path }) => !path.includes('/')) && new Set(files.map(({ path }) => path)).size === files.length;

/**
 * Describes pairs of files of which one would replace the other or would be a folder of the other's path, at most
 * `MAX_OVERLAPS`.
 */
function overlaps(files: readonly FilePath[]): string[] {
  if (files.length < 2 || areDistinctNames(files)) return [];
  const root: PathNode = { children: new Map(), files: [], within: [] };
  const texts: string[] = [];
  for (const [at, { path, source }] of files.entries()) {
    const file = { at, path: withoutTrailingSlashes(path), source };
    if (file.path === '') continue;
    const others: SeenFile[] = [];
    let node = root;
    for (const segment of file.path.split('/')) {
      others.push(...node.files);
      let child = node.children.get(segment);
      if (child === undefined) {
        child = { children: new Map(), files: [], within: [] };
        node.children.set(segment, child);
      }
      node = child;
      node.within.push(file);
    }
    others.push(...node.within.slice(0, Math.min(node.within.length - 1, MAX_OVERLAPS)));
    node.files.push(file);
    for (const other of others.toSorted((one, another) => one.at - another.at)) {
      texts.push(`${shownFile(file)} with ${shownFile(other)}`);
      if (texts.length === MAX_OVERLAPS) return texts;
    }
  }
  return texts;
}

function withoutTrailingSlashes(path: string): string {
  let end = path.length;
  while (path[end - 1] === '/') end -= 1;
  return path.slice(0, end);
}

const shownFile = ({ path, source }: FilePath): string => quoteText(path) + (source === '' ? '' : ` (${source})`);
