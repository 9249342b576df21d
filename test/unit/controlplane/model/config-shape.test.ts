/** Tests that configuration files with a misspelled field, or a field of another type, are refused as a whole. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { loadAdmissionConfiguration } from '../../../../controlplane/security/admission/admission-config.ts';
import { loadAuthenticationConfig } from '../../../../controlplane/security/authentication/authentication-config.ts';
import { loadAuthorizationConfig } from '../../../../controlplane/security/authorization/authorization-config.ts';
import { parseEncryptionConfig } from '../../../../controlplane/storage/encryption/encryption-config.ts';
import { shapeFault } from '../../../../controlplane/model/config-shape.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

describe('the shape of a configuration', () => {
  const shape = { name: 'text', rows: [{ on: 'boolean', size: 'number' }], rest: 'any' } as const;
  for (const [value, fault] of [
    [{}, undefined],
    [{ name: null, rows: null }, undefined],
    [{ name: 'a', rows: [{ on: true, size: 5 }, {}], rest: { x: [1] } }, undefined],
    [{ name: 5 }, 'name must be a text'],
    [{ nmae: 'a' }, 'unknown field "nmae"'],
    [{ rows: { on: true } }, 'rows must be a list'],
    [{ rows: [{}, 'x'] }, 'rows[1] must be an object'],
    [{ rows: [{ on: 'true' }] }, 'rows[0].on must be true or false'],
    [{ rows: [{ of: true }] }, 'unknown field "rows[0].of"'],
    [{ constructor: 'a' }, 'unknown field "constructor"'],
    [[], 'the file must be an object'],
  ] as const)
    it(`${JSON.stringify(value)} has ${fault === undefined ? 'no fault' : `the fault: ${fault}`}`, () => {
      assert.equal(shapeFault(value, shape), fault);
    });
});

const PATH = '/etc/orchlet/config.yaml';
const authorization = (webhook: string): string => `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: w
  webhook: {timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: NoOpinion, ${webhook}
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: /etc/w}}
`;
const authentication = (rules: string): string => `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: "https://issuer.example.com", audiences: [a]}
  claimMappings: {username: {claim: sub, prefix: ""}}
  ${rules}
`;
const encryption = (provider: string): string => `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [secrets], providers: [${provider}]}]
`;
const noKms = (): never => assert.fail('no key service is connected');
const podSecurity = (configuration: string): string => `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, ${configuration}}
`;

describe('a configuration file', () => {
  it('of authorizers is refused whose conditions, or whose cache settings, would be left out', () => {
    for (const [webhook, fault] of [
      ['', undefined],
      ['matchCondition: [{expression: "false"}],', 'unknown field "authorizers[0].webhook.matchCondition"'],
      ['matchConditions: {expression: "false"},', 'authorizers[0].webhook.matchConditions must be a list'],
      ['cacheAuthorizedRequests: "false",', 'authorizers[0].webhook.cacheAuthorizedRequests must be true or false'],
    ] as const) {
      const load = () => loadAuthorizationConfig(authorization(webhook), PATH);
      if (fault === undefined) load();
      else assert.throws(load, { message: `${PATH}: ${fault}` });
    }
  });

  it('that is not YAML is refused with its path', () => {
    assert.throws(() => loadAuthorizationConfig('kind: [', PATH), { message: new RegExp(`^${RegExp.escape(PATH)}: `) });
  });

  it('of issuers is refused whose rules for claims would be left out', () => {
    for (const [rules, fault] of [
      ['', undefined],
      ['claimValidationRule: [{claim: hd, requiredValue: x}]', 'unknown field "jwt[0].claimValidationRule"'],
      ['claimValidationRules: {claim: hd, requiredValue: x}', 'jwt[0].claimValidationRules must be a list'],
      ['userValidationRules: [{expresion: "false"}]', 'unknown field "jwt[0].userValidationRules[0].expresion"'],
    ] as const) {
      const load = () => loadAuthenticationConfig(authentication(rules), PATH);
      if (fault === undefined) load();
      else assert.throws(load, { message: `${PATH}: ${fault}` });
    }
  });

  it('is refused whose key occurs twice', () => {
    const text = authorization('failurePolicy: Deny,');
    assert.throws(() => loadAuthorizationConfig(text, PATH), /key "failurePolicy" already set in map/);
  });

  it('of encryption is refused with the path of the field, and without keys', async () => {
    const secret = Buffer.alloc(32).toString('base64');
    await parseEncryptionConfig(
      encryption(`{aesgcm: {keys: [{name: a, secret: ${secret}}]}}, {identity: {}}`),
      PATH,
      noKms,
    );
    const wrong = encryption(`{aesgcm: {keys: [{name: a, secret: ${secret}, secrets: ${secret}}]}}`);
    const message = `${PATH}: unknown field "resources[0].providers[0].aesgcm.keys[0].secrets"`;
    await assert.rejects(parseEncryptionConfig(wrong, PATH, noKms), { message });
  });

  it('of Pod Security is refused whose level or exemption would be left out', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'orchlet-shape-'));
    const path = join(directory, 'admission.yaml');
    const load = (configuration: string) => {
      writeFileSync(path, podSecurity(configuration));
      return loadAdmissionConfiguration(path, new FakeClock());
    };
    try {
      await load('defaults: {enforce: baseline, enforce-version: latest}');
      await assert.rejects(load('default: {enforce: baseline}'), /PodSecurity: unknown field "default"/);
      await assert.rejects(load('defaults: {enforced: baseline}'), /PodSecurity: unknown field "defaults.enforced"/);
      await assert.rejects(load('exemptions: {namespaces: kube-system}'), /exemptions.namespaces must be a list/);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });
});
