/**
 * Creates the authorizers of a control plane from its options, in the order of `--authorization-mode`, and defines the rows of
 * the documentation's table.
 */
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { RequestObserver } from '../../../api/client/request-observer.ts';
import type { Listers } from '../../model/listers.ts';
import type { SecurityPart } from '../authentication/authenticators.ts';
import { WebhookClient } from '../webhooks/webhook-client.ts';
import { webhookFromFile } from '../webhooks/webhook-file.ts';
import { abacAuthorizer } from './abac.ts';
import { loadAuthorizationConfig, type AuthorizerEntry, type MatchConditionCompiler } from './authorization-config.ts';
import { AUTHORIZATION_MODES, type AuthorizationMode } from './authorization-modes.ts';
import type { AuthorizationMetrics } from './authorization-metrics.ts';
import { NodeAuthorizer } from './node.ts';
import { RbacAuthorizer } from './rbac.ts';
import { alwaysAllow, alwaysDeny, privilegedGroups, unionAuthorizer, unionRules } from './union.ts';
import { webhookAuthorizer } from './webhook.ts';
import type { Authorizer, RuleResolver } from './authorization.ts';
import { StartError } from '../../model/start-error.ts';
import { MASTERS_GROUP } from '../../../api/meta/system-users.ts';

/** The authorizers with the flags that configure them, as `docs/security.md` lists them. */
export const AUTHORIZERS: readonly (SecurityPart & { readonly name: AuthorizationMode })[] = [
  { name: 'Node', flags: ['--authorization-mode=Node'] },
  { name: 'RBAC', flags: ['--authorization-mode=RBAC'] },
  { name: 'ABAC', flags: ['--authorization-mode=ABAC', '--authorization-policy-file'] },
  {
    name: 'Webhook',
    flags: [
      '--authorization-mode=Webhook',
      '--authorization-webhook-config-file',
      '--authorization-webhook-version',
      '--authorization-webhook-cache-authorized-ttl',
      '--authorization-webhook-cache-unauthorized-ttl',
      '--authorization-config',
    ],
  },
  { name: 'AlwaysAllow', flags: ['--authorization-mode=AlwaysAllow'] },
  { name: 'AlwaysDeny', flags: ['--authorization-mode=AlwaysDeny'] },
];

interface AuthorizersOptions {
  readonly clock: Clock;
  readonly listers: Listers;
  /** The value of `--authorization-mode`. It is not used with `configFile`. */
  readonly modes: readonly string[];
  /** The value of `--authorization-config`, and the current content of the file. */
  readonly configFile?: string;
  readonly configText?: string;
  readonly policyFile?: string;
  readonly webhook?: {
    readonly configFile: string;
    readonly version: 'v1' | 'v1beta1';
    readonly authorizedTtlMs: number;
    readonly unauthorizedTtlMs: number;
  };
  /** Compiles CEL match conditions. Without it, a configuration with match conditions is rejected. */
  readonly compileCondition?: MatchConditionCompiler;
  readonly metrics?: AuthorizationMetrics;
  /** Is notified of calls of webhooks. */
  readonly requests?: RequestObserver;
}

/** The authorizers of a control plane as one. */
export interface Authorizers {
  readonly authorizer: Authorizer;
  readonly rules: RuleResolver;
  /** Escalation checks use it even if requests are authorized by other modes. */
  readonly rbac: RbacAuthorizer;
  /**
   * Returns the function that replaces the authorizers by those of a new `--authorization-config` text. If it rejects, the old
   * ones stay. Throws if the text is invalid.
   */
  replacement(text: string): () => Promise<void>;
  close(): void;
}

type ResolvingAuthorizer = Authorizer & RuleResolver;

/**
 * Creates the authorizers of the modes or of the configuration file. Rejects if a configured file cannot be read or parsed, if
 * a mode lacks the flag of its file, and with a `StartError` for an unknown mode.
 */
export async function buildAuthorizers(options: AuthorizersOptions): Promise<Authorizers> {
  const { clock, listers, configFile = '', metrics } = options;
  const client = new WebhookClient('kube-apiserver', {
    measured: options.requests && { observer: options.requests, clock },
  });
  const rbac = new RbacAuthorizer(listers);
  const byType = new Map<string, ResolvingAuthorizer>([
    ['RBAC', rbac],
    ['AlwaysAllow', alwaysAllow],
    ['AlwaysDeny', alwaysDeny],
  ]);
  const load = (text: string): readonly AuthorizerEntry[] =>
    loadAuthorizationConfig(text, configFile, options.compileCondition);
  const first =
    configFile === ''
      ? options.modes.map((type): AuthorizerEntry => ({ type, name: type.toLowerCase() }))
      : load(options.configText ?? '');
  for (const { type } of first) {
    if (type === 'Node') byType.set(type, new NodeAuthorizer(listers));
    if (type === 'ABAC') byType.set(type, await abacFrom(options.policyFile));
  }
  if (!first.some(({ type }) => type === 'RBAC')) byType.delete('RBAC');
  const listOf = async (
    entries: readonly AuthorizerEntry[],
  ): Promise<{ authorizer: Authorizer; rules: RuleResolver }> => {
    const authorizers: Authorizer[] = [privilegedGroups([MASTERS_GROUP])];
    const resolvers: RuleResolver[] = [];
    for (const entry of entries) {
      const member = byType.get(entry.type) ?? (await createWebhook(entry, options, client));
      authorizers.push(metrics?.counted(member, entry) ?? member);
      resolvers.push(member);
    }
    return { authorizer: unionAuthorizer(authorizers), rules: unionRules(resolvers) };
  };
  let current = await listOf(first);
  const authorizer: Authorizer = { authorize: (attributes) => current.authorizer.authorize(attributes) };
  return {
    authorizer: metrics?.measured(authorizer, () => clock.monotonic()) ?? authorizer,
    rules: { rulesFor: (user, namespace) => current.rules.rulesFor(user, namespace) },
    rbac,
    replacement(text) {
      const entries = load(text);
      return async () => {
        current = await listOf(entries);
      };
    },
    close: () => client.close(),
  };
}

async function abacFrom(path: string | undefined): Promise<ResolvingAuthorizer> {
  if (path === undefined) throw new Error('authorization mode ABAC needs --authorization-policy-file');
  return abacAuthorizer(await readFile(path, 'utf8'), path);
}

const AT_START: ReadonlySet<string> = new Set(['Node', 'RBAC', 'ABAC']);

/** Creates the authorizer of a webhook. Rejects for another type, without settings, and if the kubeconfig file is invalid. */
async function createWebhook(
  entry: AuthorizerEntry,
  options: AuthorizersOptions,
  client: WebhookClient,
): Promise<ResolvingAuthorizer> {
  if (AT_START.has(entry.type))
    throw new Error(`authorizer type ${entry.type} is not allowed if it was not enabled at initial server startup`);
  if (entry.type !== 'Webhook')
    throw new StartError(`"${entry.type}" is not an authorization mode, which are ${AUTHORIZATION_MODES.join(', ')}`);
  const settings = entry.webhook ?? options.webhook;
  if (settings === undefined) throw new Error('authorization mode Webhook needs --authorization-webhook-config-file');
  const endpoint = await webhookFromFile(settings.configFile, options.clock);
  return webhookAuthorizer({ ...settings, endpoint, client, clock: options.clock, name: entry.name });
}
