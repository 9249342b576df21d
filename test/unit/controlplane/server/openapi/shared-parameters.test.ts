/**
 * Tests the shared parameters of OpenAPI 2, from 'controlplane/server/openapi/document-v2.ts',
 * 'controlplane/server/openapi/parameters.ts' and 'api/schema/parameter-texts.ts'. Their names contain a hash of the whole
 * definition, so that equal names mean equal texts.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parameterText } from '../../../../../api/schema/parameter-texts.ts';
import { builtinResources } from '../../../../../api/schema/resources.ts';
import { loadSchema } from '../../../../../api/schema/table.ts';
import type { ResourceCatalog } from '../../../../../controlplane/model/rest.ts';
import { buildBaseV2 } from '../../../../../controlplane/server/openapi/document-v2.ts';
import { at } from '../../../../fakes/json-tree.ts';

/** The names in the document of kube-apiserver 1.36.2. */
const NAMES = `
  allowWatchBookmarks-HC2hJt-J body-2Y1dVQaQ body-78PwaGsr command-Py3eQybp container-1GeXxFDC container-_Q-EJ3nR
  container-i5dOmRiM continue-QfD61s0i fieldManager-7c6nTn1T fieldManager-Qy4HdaTW fieldSelector-xIcQKXFG follow-9OIXh_2R
  force-tOGGb0Yi gracePeriodSeconds--K5HaBOS ignoreStoreReadErrorWithClusterBreakingPotential-QbNkfIqj
  insecureSkipTLSVerifyBackend-gM00jVbe labelSelector-5Zw57w4C limit-1NfNmdNH limitBytes-zwd1RXuc namespace-vgWSWtn3
  orphanDependents-uRB25kX5 path-QCf0eosM path-oPbzgLUj path-rFDtV0x9 path-z6Ciiujn ports-91KROJmm pretty-tJGM1-ng
  previous-1jxDPu3y propagationPolicy-6jk3prlO resourceVersion-5WAnf1kx resourceVersionMatch-t8XhRHeC
  sendInitialEvents-rLXlEK_k shardSelector-Kgyki_3_ sinceSeconds-vE2NLdnP stderr-26jJhFUR stderr-W_1TNlWc stdin-PSzNhyUC
  stdin-sEFnN3IS stdout--EZLRwV1 stdout-005YMKE6 stream-l-48cgXv tailLines-9xQLWHMV timeoutSeconds-yvYezaOC
  timestamps-c17fW1w_ tty-g7MlET_l tty-s0flW37O watch-XNNPZGbK`;

const catalog: ResourceCatalog = {
  find: () => undefined,
  resources: () => builtinResources(),
  onChange: () => () => undefined,
};

test('the shared parameters have the names and the texts of those of kube-apiserver', async () => {
  const { parameters, paths } = await buildBaseV2({ catalog, schema: loadSchema(), release: 'v1.36.2' });
  assert.deepEqual([...parameters.keys()].sort(), NAMES.trim().split(/\s+/).sort());
  const deletion = at(paths, '/api/v1/namespaces/{namespace}/configmaps', 'delete', 'parameters');
  assert.equal(at(deletion, '0', '$ref'), '#/parameters/body-2Y1dVQaQ');
  assert.match(String(at(paths, '/api/v1/componentstatuses', 'get', 'description')), /^list objects/);
});

test('a text that the package does not have is empty', () => {
  assert.equal(parameterText('listNamespacedPod', 'nothing'), '');
  assert.equal(parameterText('noOperation', 'limit'), '');
});
