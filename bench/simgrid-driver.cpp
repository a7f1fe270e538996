// The same systems in SimGrid's max-min solver: reads what `model_speed --systems FILE` wrote, solves again after each event, writes the
// rates and prints the median time of a solve.
//
// SimGrid's package has no header for its solver, but its library has the solver's symbols. What is declared here is the part of
// src/kernel/lmm/System.hpp of SimGrid 3.32 that is called; `check_layout` refuses to go on where it does not fit.
#include <xbt/base.h>

#include <simgrid/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#if SIMGRID_VERSION_MAJOR != 3 || SIMGRID_VERSION_MINOR != 32
#error "written for SimGrid 3.32: compare src/kernel/lmm/System.hpp of this version with the declarations below"
#endif

namespace simgrid::kernel {
namespace resource {
class Action;
class Resource;
}
namespace lmm {
class Constraint;
class Variable;

class System {
public:
  static System* build(std::string_view solver_name, bool selective_update);
  Constraint* constraint_new(resource::Resource* id, double bound_value);
  Variable* variable_new(resource::Action* id, double sharing_penalty, double bound, std::size_t number_of_constraints);
  void variable_free(Variable* var);
  void expand(Constraint* cnst, Variable* var, double value, bool force_creation);
  void solve();
};
}
}

using simgrid::kernel::lmm::Constraint;
using simgrid::kernel::lmm::System;
using simgrid::kernel::lmm::Variable;

namespace {

// Two list hooks (two pointers each), a vector of elements, then sharing penalty, staged sharing penalty, bound, value.
constexpr std::size_t BOUND_AT = 2 * 16 + 24 + 2 * 8;
constexpr std::size_t VALUE_AT = BOUND_AT + 8;

double at(const Variable* variable, std::size_t offset)
{
  double value;
  std::memcpy(&value, reinterpret_cast<const char*>(variable) + offset, sizeof value);
  return value;
}

struct Kind {
  double bound;
  std::vector<std::pair<int, double>> weights;
};

Variable* start(System* system, const std::vector<Constraint*>& stations, const Kind& kind)
{
  Variable* variable = system->variable_new(nullptr, 1.0, kind.bound, kind.weights.size());
  for (auto [station, weight] : kind.weights)
    system->expand(stations[station], variable, weight, false);
  return variable;
}

// A system whose answer is known: a capacity of 1, two that need 4 each, one of them at most 0.05: 0.05 and 0.2.
void check_layout()
{
  System* system = System::build("maxmin", false);
  std::vector<Constraint*> stations{system->constraint_new(nullptr, 1.0)};
  Variable* free_one = start(system, stations, Kind{0.5, {{0, 4.0}}});
  Variable* held = start(system, stations, Kind{0.05, {{0, 4.0}}});
  system->solve();
  bool fits = at(held, BOUND_AT) == 0.05 && std::abs(at(held, VALUE_AT) - 0.05) < 1e-9 &&
              std::abs(at(free_one, VALUE_AT) - 0.2) < 1e-9;
  if (!fits) {
    std::cerr << "SimGrid's variables are not laid out as in 3.32: nothing is measured\n";
    std::exit(1);
  }
}

double median(std::vector<double> values)
{
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

} // namespace

int main(int argc, char** argv)
{
  if (argc != 3) {
    std::cerr << "usage: simgrid-driver SYSTEMS RATES\n";
    return 2;
  }
  check_layout();
  std::ifstream in(argv[1]);
  std::ofstream out(argv[2]);
  out.precision(17);
  std::string word, machine;
  int station_count, group_count, kind_count, event_count;
  while (in >> word >> machine >> station_count >> group_count >> kind_count >> event_count) {
    std::vector<std::vector<Kind>> kinds(group_count, std::vector<Kind>(kind_count));
    for (auto& of_group : kinds)
      for (auto& kind : of_group) {
        int weight_count;
        in >> kind.bound >> weight_count;
        kind.weights.resize(weight_count);
        for (auto& [station, weight] : kind.weights)
          in >> station >> weight;
      }
    std::vector<std::pair<int, int>> events(event_count);
    for (auto& [group, kind] : events)
      in >> group >> kind;

    System* system = System::build("maxmin", false);
    std::vector<Constraint*> stations;
    for (int i = 0; i < station_count; i++)
      stations.push_back(system->constraint_new(nullptr, 1.0));
    std::vector<Variable*> variables;
    for (const auto& of_group : kinds)
      variables.push_back(start(system, stations, of_group[0]));
    system->solve();

    std::vector<double> solving, all;
    for (auto [group, kind] : events) {
      auto before = std::chrono::steady_clock::now();
      system->variable_free(variables[group]);
      variables[group] = start(system, stations, kinds[group][kind]);
      auto changed = std::chrono::steady_clock::now();
      system->solve();
      auto after = std::chrono::steady_clock::now();
      solving.push_back(std::chrono::duration<double>(after - changed).count());
      all.push_back(std::chrono::duration<double>(after - before).count());
      for (const Variable* variable : variables)
        out << at(variable, VALUE_AT) << ' ';
      out << '\n';
    }
    std::printf("%s %d %.3f %.3f\n", machine.c_str(), group_count, median(all) * 1e6, median(solving) * 1e6);
  }
}
