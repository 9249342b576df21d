/**
 * Evaluates `--runtime-config`, which selects the built-in groups, versions and resources that are served. Alpha and beta
 * versions are off unless they are named. General keys apply first: `api/all`, then `api/ga`, `api/beta`, `api/alpha`, then
 * versions, then single resources.
 */
import { quoteText } from '../../api/meta/quote.ts';
import { builtinResources } from '../../api/schema/resources.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import { apiVersionOf } from '../../api/meta/object.ts';

type Pairs = Readonly<Record<string, string>>;

const STAGES: readonly (readonly [key: string, version: RegExp])[] = [
  ['api/all', /^/],
  ['api/ga', /^v\d+$/],
  ['api/beta', /^v\d+beta\d+$/],
  ['api/alpha', /^v\d+alpha\d+$/],
];
const TRUE: ReadonlySet<string> = new Set(['', '1', 't', 'T', 'TRUE', 'true', 'True']);
const FALSE: ReadonlySet<string> = new Set(['0', 'f', 'F', 'FALSE', 'false', 'False']);

/** The resources that the control plane reads and writes itself before it serves clients. */
const NEEDED: readonly string[] = [
  '/v1/namespaces',
  '/v1/configmaps',
  '/v1/pods',
  'rbac.authorization.k8s.io/v1/clusterroles',
  'rbac.authorization.k8s.io/v1/clusterrolebindings',
  'rbac.authorization.k8s.io/v1/roles',
  'rbac.authorization.k8s.io/v1/rolebindings',
];

/** Returns why the flag is refused, or `undefined` if it is valid. */
export function checkRuntimeConfig(pairs: Pairs): string | undefined {
  const keys = Object.entries(pairs);
  if (keys.length === 1 && keys[0]?.[0] === 'api/all' && FALSE.has(keys[0][1]))
    return 'invalid key with only api/all=false';
  const groups = new Set(builtinResources().map(({ group }) => group));
  const versions = new Set(builtinResources().map(({ group, version }) => `${group}/${version}`));
  for (const [key, value] of keys) {
    if (!TRUE.has(value) && !FALSE.has(value)) return `invalid value of ${key}=${value}: must be true or false`;
    if (STAGES.some(([stage]) => stage === key)) continue;
    const tokens = partsOf(key);
    if (tokens.length !== 2 && tokens.length !== 3) return `runtime-config invalid key ${key}`;
    const [group = '', version = '', resource = ''] = tokens;
    if (!groups.has(group)) return `unknown api groups ${group}`;
    if (!versions.has(`${group}/${version}`))
      return `group version ${apiVersionOf({ group, version })} that has not been registered`;
    if (resource !== resource.toLowerCase()) {
      const form = 'group/version/resource and resource is always lowercase plural';
      return `invalid key ${key}: ${form}, not ${quoteText(resource)}`;
    }
  }
  const serves = servedResources(pairs);
  const missing = builtinResources().find(
    (info) => NEEDED.includes(`${info.group}/${info.version}/${info.resource}`) && !serves(info),
  );
  if (missing === undefined) return undefined;
  const { group, version, resource } = missing;
  return `${resource} of ${group === '' ? 'the core group' : group}, ${version}, cannot be off: the control plane itself needs them`;
}

/** Splits a key into group, version and resource, which it may lack. The version of the core group is `api/v1` or `v1`. */
function partsOf(key: string): string[] {
  const tokens = key.split('/');
  if (tokens[0] === 'api') return ['', ...tokens.slice(1)];
  return tokens[0] === 'v1' ? ['', ...tokens] : tokens;
}

/** Returns the predicate of served rows. It is true for rows that the table lacks, such as those of custom resources. */
export function servedResources(pairs: Pairs): (info: ResourceInfo) => boolean {
  const off = new Set<string>();
  const isOn = (key: string): boolean => TRUE.has(pairs[key] ?? '');
  const singleKeys = Object.keys(pairs).filter((key) => !STAGES.some(([stage]) => stage === key));
  const named = new Map(singleKeys.map((key) => [partsOf(key).join('/'), isOn(key)]));
  for (const { group, version, resource } of builtinResources()) {
    let served = /^v\d+$/.test(version);
    for (const [stage, pattern] of STAGES) {
      if (stage in pairs && pattern.test(version)) served = isOn(stage);
    }
    served = named.get(`${group}/${version}`) ?? served;
    served = named.get(`${group}/${version}/${resource}`) ?? served;
    if (!served) off.add(`${group}/${version}/${resource}`);
  }
  return ({ group, version, resource }) => !off.has(`${group}/${version}/${resource}`);
}
