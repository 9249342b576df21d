/** Reads `--admission-control-config-file`: configurations of single plugins, inline or in files of their own. */
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Clock } from '../../../api/machinery/clock.ts';
import { loadKubeconfig, userCredentials } from '../../../api/client/kubeconfig.ts';
import { parseConfigFile, shapeFault, type ConfigShape } from '../../model/config-shape.ts';
import { presentedOf } from '../webhooks/webhook-file.ts';
import type { PodSecurityConfiguration } from './pod-security/pod-security.ts';
import type { PodTolerationRestrictionOptions } from './pod-toleration-restriction.ts';
import type { LimitedResource } from './limited-resources.ts';
import type { WebhookCredentials } from './webhook/endpoint.ts';

/** What the file configures, by plugin. A plugin without a member here runs with its defaults. */
export interface AdmissionConfiguration {
  readonly mutatingCredentials?: WebhookCredentials;
  readonly validatingCredentials?: WebhookCredentials;
  readonly podSecurity?: PodSecurityConfiguration;
  readonly tolerations?: PodTolerationRestrictionOptions;
  /** PodNodeSelector: selectors by namespace. */
  readonly nodeSelectors?: Readonly<Record<string, string>>;
  /** ResourceQuota: resources that may only be used where a quota covers them. */
  readonly limitedResources?: readonly LimitedResource[];
  /** Plugins that the file names and that have no configuration here. */
  readonly ignored: readonly string[];
}

const VERSIONS = new Set([
  'apiserver.config.k8s.io/v1',
  'apiserver.config.k8s.io/v1alpha1',
  'apiserver.k8s.io/v1alpha1',
]);
/** The newer and the older form of the same configuration. */
const WEBHOOK_KINDS = new Set(['WebhookAdmissionConfiguration', 'WebhookAdmission']);
const SHAPE: ConfigShape = {
  apiVersion: 'text',
  kind: 'text',
  plugins: [{ name: 'text', path: 'text', configuration: 'any' }],
};
const POD_SECURITY: ConfigShape = {
  apiVersion: 'text',
  kind: 'text',
  defaults: Object.fromEntries(
    ['enforce', 'audit', 'warn'].flatMap((mode) => [
      [mode, 'text'],
      [`${mode}-version`, 'text'],
    ]),
  ) as ConfigShape,
  exemptions: { usernames: ['text'], namespaces: ['text'], runtimeClasses: ['text'] },
};
const RESOURCE_QUOTA: ConfigShape = {
  apiVersion: 'text',
  kind: 'text',
  limitedResources: [
    {
      apiGroup: 'text',
      resource: 'text',
      matchContains: ['text'],
      matchScopes: [{ scopeName: 'text', operator: 'text', values: ['text'] }],
    },
  ],
};
const NOTHING: AdmissionConfiguration = { ignored: [] };

type Refuse = (why: string) => never;

/**
 * Reads the file of `--admission-control-config-file` and the files that it names. An empty path is an empty configuration.
 * Throws an error with the path of the file.
 */
export async function loadAdmissionConfiguration(path: string, clock: Clock): Promise<AdmissionConfiguration> {
  if (path === '') return NOTHING;
  const value = parseConfigFile(await readFile(path, 'utf8'), path);
  const refuse: Refuse = (why) => {
    throw new Error(`${path}: ${why}`);
  };
  if (!isJsonObject(value) || value['kind'] !== 'AdmissionConfiguration' || !VERSIONS.has(String(value['apiVersion'])))
    return refuse('not an AdmissionConfiguration of apiserver.config.k8s.io');
  const fault = shapeFault(value, SHAPE);
  if (fault !== undefined) return refuse(fault);
  let configuration = NOTHING;
  const plugins: unknown[] = Array.isArray(value['plugins']) ? value['plugins'] : [];
  for (const [i, plugin] of plugins.entries()) {
    const name = isJsonObject(plugin) ? plugin['name'] : undefined;
    if (!isJsonObject(plugin) || typeof name !== 'string' || name === '')
      return refuse(`plugins[${i}].name is required`);
    const content = await contentOf(plugin, dirname(path));
    // A plugin that is named without a configuration has its defaults.
    if (content === undefined) continue;
    const part = await pluginPart(name, content, { refuse, directory: dirname(path), clock });
    configuration = { ...configuration, ...part, ignored: [...configuration.ignored, ...(part.ignored ?? [])] };
  }
  return configuration;
}

/** Returns the configuration of a plugin: `configuration`, or the file that `path` names. `undefined` without either. */
async function contentOf(plugin: Record<string, unknown>, directory: string): Promise<unknown> {
  const { configuration, path } = plugin;
  if (configuration !== undefined && configuration !== null) return configuration;
  if (typeof path !== 'string' || path === '') return undefined;
  const file = resolve(directory, path);
  return parseConfigFile(await readFile(file, 'utf8'), file);
}

interface Reading {
  readonly refuse: Refuse;
  readonly directory: string;
  readonly clock: Clock;
}

async function pluginPart(name: string, content: unknown, reading: Reading): Promise<Partial<AdmissionConfiguration>> {
  switch (name) {
    case 'MutatingAdmissionWebhook':
      return { mutatingCredentials: await webhookCredentials(name, content, reading) };
    case 'ValidatingAdmissionWebhook':
      return { validatingCredentials: await webhookCredentials(name, content, reading) };
    case 'PodSecurity':
      return { podSecurity: podSecurityOf(content, reading.refuse) };
    case 'PodTolerationRestriction':
      return { tolerations: tolerationsOf(content) };
    case 'ResourceQuota':
      return { limitedResources: limitedResourcesOf(content, reading.refuse) };
    case 'PodNodeSelector':
      return { nodeSelectors: nodeSelectorsOf(content) };
    default:
      return { ignored: [name] };
  }
}

async function webhookCredentials(
  name: string,
  content: unknown,
  { refuse, directory, clock }: Reading,
): Promise<WebhookCredentials> {
  if (
    !isJsonObject(content) ||
    !WEBHOOK_KINDS.has(String(content['kind'])) ||
    !VERSIONS.has(String(content['apiVersion']))
  )
    return refuse(`${name}: not a WebhookAdmissionConfiguration of apiserver.config.k8s.io`);
  const file = content['kubeConfigFile'];
  if (typeof file !== 'string' || file === '') return () => Promise.resolve({});
  const config = await loadKubeconfig(resolve(directory, file));
  return async (serverName) => {
    const user = userFor(serverName, config.users, config.contexts.get(config.currentContext)?.value.user);
    if (user === undefined) return {};
    const credentials = await userCredentials(config, user, { clock });
    return presentedOf(await credentials.current());
  };
}

/**
 * Returns the user of a kubeconfig for a server, or `undefined` if none fits. Users are tried in this order: the server's name
 * with the port, `*.` and each shorter domain, the same without port 443, `*`, the user of the current context.
 */
export function userFor(
  serverName: string,
  users: { has(name: string): boolean },
  current: string | undefined,
): string | undefined {
  const withPort = /:\d+$/.test(serverName) ? serverName : `${serverName}:443`;
  const names = withPort.endsWith(':443') ? [withPort, withPort.slice(0, -':443'.length)] : [withPort];
  for (const name of names) {
    if (users.has(name)) return name;
    const steps = name.split('.');
    for (let i = 1; i < steps.length; i++) {
      const wildcard = `*.${steps.slice(i).join('.')}`;
      if (users.has(wildcard)) return wildcard;
    }
  }
  if (users.has('*')) return '*';
  return current !== undefined && users.has(current) ? current : undefined;
}

const texts = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((one): one is string => typeof one === 'string') : [];

function podSecurityOf(content: unknown, refuse: Refuse): PodSecurityConfiguration {
  if (!isJsonObject(content) || content['kind'] !== 'PodSecurityConfiguration')
    return refuse('PodSecurity: not a PodSecurityConfiguration of pod-security.admission.config.k8s.io');
  const fault = shapeFault(content, POD_SECURITY);
  if (fault !== undefined) return refuse(`PodSecurity: ${fault}`);
  const defaults = isJsonObject(content['defaults']) ? content['defaults'] : {};
  const exemptions = isJsonObject(content['exemptions']) ? content['exemptions'] : {};
  return {
    defaults: Object.fromEntries(
      Object.entries(defaults).filter((pair): pair is [string, string] => typeof pair[1] === 'string'),
    ),
    exemptUsers: new Set(texts(exemptions['usernames'])),
    exemptNamespaces: new Set(texts(exemptions['namespaces'])),
    exemptRuntimeClasses: new Set(texts(exemptions['runtimeClasses'])),
  };
}

function nodeSelectorsOf(content: unknown): Readonly<Record<string, string>> {
  const selectors = isJsonObject(content) ? content['podNodeSelectorPluginConfig'] : undefined;
  return Object.fromEntries(
    Object.entries(isJsonObject(selectors) ? selectors : {}).filter(
      (pair): pair is [string, string] => typeof pair[1] === 'string',
    ),
  );
}

function tolerationsOf(content: unknown): PodTolerationRestrictionOptions {
  const list = (value: unknown) =>
    (Array.isArray(value)
      ? value.filter(isJsonObject)
      : []) as unknown as PodTolerationRestrictionOptions['clusterDefaults'];
  const configuration = isJsonObject(content) ? content : {};
  return { clusterDefaults: list(configuration['default']), clusterWhitelist: list(configuration['whitelist']) };
}

function limitedResourcesOf(content: unknown, refuse: Refuse): readonly LimitedResource[] {
  const kinds = ['ResourceQuotaConfiguration', 'Configuration'];
  if (!isJsonObject(content) || !kinds.includes(String(content['kind'])))
    return refuse('ResourceQuota: not a ResourceQuotaConfiguration of apiserver.config.k8s.io');
  const fault = shapeFault(content, RESOURCE_QUOTA);
  if (fault !== undefined) return refuse(`ResourceQuota: ${fault}`);
  const rows: unknown[] = Array.isArray(content['limitedResources']) ? content['limitedResources'] : [];
  return rows.filter(isJsonObject).map((row) => ({
    group: typeof row['apiGroup'] === 'string' ? row['apiGroup'] : '',
    resource: String(row['resource'] ?? ''),
    matchContains: texts(row['matchContains']),
    matchScopes: (Array.isArray(row['matchScopes']) ? row['matchScopes'] : []).filter(isJsonObject).map((scope) => ({
      scopeName: String(scope['scopeName'] ?? ''),
      operator: String(scope['operator'] ?? ''),
      values: texts(scope['values']),
    })),
  }));
}
