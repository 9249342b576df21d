/**
 * The authorizers of a control plane in the order of `--authorization-mode`, made from its options; and the rows from which
 * the documentation's table is made. Called by main.ts.
 */
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Sources } from '../admission/sources.ts';
import type { SecurityPart } from '../authentication/authenticators.ts';
import { WebhookClient } from '../authentication/webhook-client.ts';
import { webhookFromFile } from '../authentication/webhook-file.ts';
import { abacAuthorizer } from './abac.ts';
import { loadAuthorizationConfig, type AuthorizerEntry, type MatchConditionCompiler } from './authorization-config.ts';
import { NodeAuthorizer } from './node.ts';
import { RbacAuthorizer } from './rbac.ts';
import { alwaysAllow, alwaysDeny, MASTERS_GROUP, privilegedGroups, unionAuthorizer, unionRules } from './union.ts';
import { webhookAuthorizer } from './webhook.ts';
import type { Authorizer, RuleResolver } from './authorization.ts';

export const AUTHORIZERS: readonly SecurityPart[] = [
  { name: 'Node', flags: ['--authorization-mode=Node'], source: 'node.ts' },
  { name: 'RBAC', flags: ['--authorization-mode=RBAC'], source: 'rbac.ts' },
  { name: 'ABAC', flags: ['--authorization-mode=ABAC', '--authorization-policy-file'], source: 'abac.ts' },
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
    source: 'webhook.ts',
  },
  { name: 'AlwaysAllow', flags: ['--authorization-mode=AlwaysAllow'], source: 'union.ts' },
  { name: 'AlwaysDeny', flags: ['--authorization-mode=AlwaysDeny'], source: 'union.ts' },
];

export interface AuthorizersOptions {
  readonly clock: Clock;
  readonly sources: Sources;
  /** `--authorization-mode`, in order. Not used with `configFile`. */
  readonly modes: readonly string[];
  /** `--authorization-config`. */
  readonly configFile?: string;
  readonly policyFile?: string;
  readonly webhook?: {
    readonly configFile: string;
    readonly version: 'v1' | 'v1beta1';
    readonly authorizedTtlMs: number;
    readonly unauthorizedTtlMs: number;
  };
  /** CEL of match conditions; without it a configuration with conditions is refused. */
  readonly compileCondition?: MatchConditionCompiler;
}

export interface Authorizers {
  readonly authorizer: Authorizer;
  readonly rules: RuleResolver;
  /** Escalation checks ask it even where requests are authorized otherwise. */
  readonly rbac: RbacAuthorizer;
  readonly node: NodeAuthorizer | undefined;
  close(): void;
}

export async function buildAuthorizers(options: AuthorizersOptions): Promise<Authorizers> {
  const client = new WebhookClient('kube-apiserver');
  const rbac = new RbacAuthorizer(options.sources);
  const entries: readonly AuthorizerEntry[] =
    options.configFile === undefined
      ? options.modes.map((type) => ({ type, name: type.toLowerCase() }))
      : loadAuthorizationConfig(
          await readFile(options.configFile, 'utf8'),
          options.configFile,
          options.compileCondition,
        );
  const authorizers: Authorizer[] = [privilegedGroups([MASTERS_GROUP])];
  const resolvers: RuleResolver[] = [];
  let node: NodeAuthorizer | undefined;
  for (const entry of entries) {
    switch (entry.type) {
      case 'Node':
        node = new NodeAuthorizer(options.sources);
        authorizers.push(node);
        resolvers.push(node);
        break;
      case 'RBAC':
        authorizers.push(rbac);
        resolvers.push(rbac);
        break;
      case 'ABAC': {
        if (options.policyFile === undefined)
          throw new Error('authorization mode ABAC needs --authorization-policy-file');
        const abac = abacAuthorizer(await readFile(options.policyFile, 'utf8'), options.policyFile);
        authorizers.push(abac);
        resolvers.push(abac);
        break;
      }
      case 'Webhook': {
        const settings = entry.webhook ?? options.webhook;
        if (settings === undefined)
          throw new Error('authorization mode Webhook needs --authorization-webhook-config-file');
        const endpoint = await webhookFromFile(settings.configFile, options.clock);
        const webhook = webhookAuthorizer({ ...settings, endpoint, client, clock: options.clock, name: entry.name });
        authorizers.push(webhook);
        resolvers.push(webhook);
        break;
      }
      case 'AlwaysAllow':
        authorizers.push(alwaysAllow);
        resolvers.push(alwaysAllow);
        break;
      case 'AlwaysDeny':
        authorizers.push(alwaysDeny);
        resolvers.push(alwaysDeny);
        break;
      default:
        throw new Error(
          `"${entry.type}" is no authorization mode: use Node, ABAC, RBAC, Webhook, AlwaysAllow or AlwaysDeny`,
        );
    }
  }
  return {
    authorizer: unionAuthorizer(authorizers),
    rules: unionRules(resolvers),
    rbac,
    node,
    close: () => client.close(),
  };
}
