import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clusterDomainOf } from '../../../../agent/assembly/cluster-services.ts';

const dns = { apiVersion: 'v1', kind: 'Service', metadata: { name: 'kube-dns', namespace: 'kube-system' } };

for (const [name, flags, served, expected] of [
  ['the domain of the flag', { clusterDomain: 'corp', clusterDns: [] }, dns, 'corp'],
  ['the default domain with the name servers of kube-dns', { clusterDomain: '', clusterDns: [] }, dns, 'cluster.local'],
  ['no domain with name servers of a flag alone', { clusterDomain: '', clusterDns: ['10.0.0.10'] }, dns, ''],
  ['no domain without a cluster DNS', { clusterDomain: '', clusterDns: [] }, undefined, ''],
] as const)
  test(`pods get ${name}`, () => assert.equal(clusterDomainOf(flags, served), expected));
