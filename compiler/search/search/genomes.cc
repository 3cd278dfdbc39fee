#include "compiler/search/search/genomes.h"

#include <utility>
#include <vector>

namespace athanor {

Genomes::Genomes(FormSpace* forms, TaskTable* tasks, const FusionRules& rules)
    : forms_(*forms), tasks_(*tasks), rules_(rules) {}

TaskIndex& Genomes::IndexOf(int form) {
  auto known = indexes_.find(form);
  if (known == indexes_.end()) {
    known = indexes_.try_emplace(form, forms_.graph(form), &numbers_).first;
  }
  return known->second;
}

Genome Genomes::Choose(const Graph& graph, const TaskIndex& index, const Fusion& fusion) {
  return ChooseKernels(graph, tasks_.context().target, fusion,
                       FusionKnowledge{&fused_, &index.kinds()});
}

Genome Genomes::Choose(int form, const Fusion& fusion) {
  return Choose(forms_.graph(form), IndexOf(form), fusion);
}

Calls Genomes::CallsOf(const Graph& graph, TaskIndex& index, const Fusion& fusion) {
  Calls calls;
  const Genome genome = Choose(graph, index, fusion);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  for (const KernelChoice& kernel : genome.kernels) {
    if (index.weights()[kernel.root]) continue;  // computed once, by `prepare`
    ++calls[tasks_.Find(graph, index, memory, kernel)];
  }
  return calls;
}

Calls Genomes::CallsOf(int form, const Fusion& fusion) {
  return CallsOf(forms_.graph(form), IndexOf(form), fusion);
}

Calls Genomes::UsualCalls(const Graph& graph) {
  TaskIndex index(graph, &numbers_);
  return CallsOf(graph, index, {{}, rules_});
}

FusedForm Genomes::Make(int form, Fusion fusion) {
  Calls calls = CallsOf(form, fusion);
  return {form, std::move(fusion), std::move(calls)};
}

ScheduledGraph Genomes::Packed(int form, Genome genome) const {
  ScheduledGraph scheduled{forms_.graph(form), std::move(genome)};
  PackWeights(&scheduled.graph, &scheduled.genome, tasks_.context().target);
  return scheduled;
}

Fusion Genomes::Carried(const FusedForm& from, int form) {
  Fusion fusion{{}, rules_};
  if (from.fusion.nodes.empty()) return fusion;
  std::map<int, Fuse> say;  // by value
  const TaskIndex& old = IndexOf(from.form);
  for (const auto& [node, fuse] : from.fusion.nodes) say[old.value(node)] = fuse;
  const TaskIndex& index = IndexOf(form);
  const auto count = static_cast<NodeId>(forms_.graph(form).nodes.size());
  for (NodeId n = 0; n < count; ++n) {
    if (auto it = say.find(index.value(n)); it != say.end()) fusion.nodes[n] = it->second;
  }
  return fusion;
}

Fusion Genomes::FusionOf(const RecipeForm& recipe) {
  // Memory that one value gets or loses may open a choice for others.
  constexpr int kRounds = 3;
  Fusion fusion{{}, rules_};
  for (int round = 0; round < kRounds; ++round) {
    bool changed = false;
    for (const auto& [node, say] :
         FusionFlips(forms_.graph(recipe.form), Choose(recipe.form, fusion), rules_)) {
      const auto known = recipe.memory.find(node);
      if (known == recipe.memory.end() || known->second != (say == Fuse::kMemory)) continue;
      changed |= fusion.nodes.insert({node, say}).second;
    }
    if (!changed) break;
  }
  return fusion;
}

}  // namespace athanor
