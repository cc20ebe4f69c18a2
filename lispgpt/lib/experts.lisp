; A mixture of experts: each row goes through the few of them that a router likes most, weighed by how much.
; "Outrageously Large Neural Networks", Shazeer et al. 2017; "Mixtral of Experts", Jiang et al. 2024.
(require nn)

; Whether layer l has experts: layers from 1 on that `step` divides have them, but for those among `dense`.
(defn has-experts [l step dense]
  (fold (fn [has other] (if (= l other) false has)) (= (mod (+ l 1) step) 0) dense))

; scores [rows experts] -> as many as `top` pairs of the next best expert of each row, i32 [rows], and its score, [rows];
; an error where there are not as many experts
(defn best-experts [scores top]
  (let [[n count] (shape scores)
        _ (if (or (< top 1) (> top count)) (error (str "no row can go through " top " of " count " experts")) nil)]
    (first
      (fold (fn [found i]
              (let [[chosen scores] found
                    best (argmax scores)]
                [(concat chosen [[best (tensor [r n] (at scores r (at best r)))]])
                 (tensor [r n e count] (select (= (cast e i32) (at best r)) -inf (at scores r e)))]))
            [[] scores]
            (range top)))))

; x [rows in], w [experts out in], expert [rows] -> [rows out]: of w, a row reads only what its expert has
(defn by-expert [x w expert]
  (let [[n in] (shape x)
        own (tensor [r n o (dim w 1) i in] (at w (at expert r) o i))]
    (contract [r o] x [r i] own [r o i])))

; scores [rows experts], of as many groups, with `without` for those that are in none of the `top` best groups; (worth x)
; says of scores [rows groups each] how good groups are, [rows groups]
(defn in-best-groups [scores groups top worth without]
  (let [[n count] (shape scores)
        each (quot count groups)
        by-group (reshape scores [n groups each])
        chosen (map first (best-experts (worth by-group) top))]
    (reshape
      (tensor [r n g groups e each]
        (fold (fn [kept group] (select (= (cast g i32) (at group r)) (at by-group r g e) kept)) without chosen))
      [n count])))

; what a group's two best scores come to, for `in-best-groups`
(defn best-two [by-group]
  (let [[n groups each] (shape by-group)
        [one other] (map (fn [c] (nth c 1)) (best-experts (reshape by-group [(* n groups) each]) 2))]
    (reshape (+ one other) [n groups])))

; x [rows width] through experts, one for each row -> [rows width]
(defn through-expert [x expert gate up down]
  (by-expert (* (silu (by-expert x gate expert)) (by-expert x up expert)) down expert))

; `through-expert` where gates and what they are times are one matrix, [experts 2*hidden width]
(defn through-joined [x expert gate-up down]
  (let [both (by-expert x gate-up expert)
        hidden (quot (dim both 1) 2)
        half (fn [i] (slice both [0 (* i hidden)] [(dim x 0) hidden]))]
    (by-expert (* (silu (half 0)) (half 1)) down expert)))

; how likely experts are, [rows experts], and how much they are liked, likewise -> the `top` that are liked best, each an
; expert, i32 [rows], and how likely that is times `scale`, f32 [rows], where `normed` as a share of what all these are
(defn best-liked [likely liked top normed scale]
  (let [best (map first (best-experts liked top))
        weights (map (fn [e] (tensor [r (dim likely 0)] (at likely r (at e r)))) best)
        total (if normed (+ 1e-20 (fold + 0.0 weights)) 1.0)]
    (map (fn [e weight] [e (* scale (/ weight total))]) best weights)))

; DeepSeek 2's choice of experts by their scores [rows experts]: the best `top` of the `top-groups` best of so many groups
(defn chosen-by-softmax [scores groups top-groups top normed scale]
  (let [likely (if normed (error "the shares of these experts are not normed: norm_topk_prob is false") (softmax scores))
        liked (if (= groups top-groups) likely (in-best-groups likely groups top-groups maximum 0.0))]
    (best-liked likely liked top false scale)))

; DeepSeek 3's, which a bias [experts] moves
(defn chosen-by-sigmoid [scores bias groups top-groups top normed scale]
  (let [likely (sigmoid scores)
        liked (+ likely bias)
        liked (if (= groups top-groups) liked (in-best-groups liked groups top-groups best-two -inf))]
    (best-liked likely liked top normed scale)))

; the sum of what some experts of each row make of it, (make expert) [rows width] for an expert of each; chosen: each an
; expert, i32 [rows], and its share, f32 [rows]
(defn shared-among [chosen make]
  (fold (fn [sum c]
          (let [[expert share] c
                y (make expert)]
            (+ sum (tensor [r (dim y 0) c (dim y 1)] (* (at y r c) (at share r))))))
        0.0 chosen))

; `shared-among` of experts that are feed-forward layers with a gate
(defn shared-out [x chosen gate up down]
  (shared-among chosen (fn [expert] (through-expert x expert gate up down))))

; x [rows in], w [experts in out] as some models store it, b [experts out] -> [rows out]
(defn from-expert [x w b expert]
  (let [[n in] (shape x)
        own (tensor [r n o (dim w 2) i in] (at w (at expert r) i o))
        y (contract [r o] x [r i] own [r o i])]
    (tensor [r n o (dim w 2)] (+ (at y r o) (at b (at expert r) o)))))

; x [rows in], w [experts out in], b [experts out] -> [rows out]: `by-expert`, and a bias
(defn from-expert-rows [x w b expert]
  (let [y (by-expert x w expert)]
    (tensor [r (dim y 0) o (dim y 1)] (+ (at y r o) (at b (at expert r) o)))))

; scores [rows experts] -> the sum of what the `top` best experts of each row make of it, (make expert) [rows width] for
; an expert of each row, times its share of the softmax over all experts' scores, or, where `normed` is true, over those
; of the chosen ones
(defn mixture-of [scores top normed make]
  (let [chosen (best-experts scores top)
        [n count] (shape scores)
        best (nth (first chosen) 1)             ; the largest score
        weight (fn [score] (exp (- score best)))
        all (sum (tensor [r n e count] (exp (- (at scores r e) (at best r)))))
        total (if normed (fold (fn [t c] (+ t (weight (nth c 1)))) 0.0 chosen) all)
        parts (map (fn [c]
                     (let [[expert score] c
                           share (weight score)
                           y (make expert)]
                       (tensor [r n c (dim y 1)] (* (at y r c) (/ (at share r) (at total r))))))
                   chosen)]
    (fold + (first parts) (rest parts))))

; x [rows width]; router [experts width], gate and up [experts hidden width], down [experts width hidden]: the mixture of
; experts that are feed-forward layers with a gate
(defn mixture [x router gate up down top normed]
  (mixture-of (linear x router) top normed
              (fn [expert] (through-expert x expert gate up down))))

; x [rows width] as much as its rows' gates say, [rows 1]
(defn opened [x gate]
  (let [share (sigmoid gate)]
    (tensor [n (dim x 0) c (dim x 1)] (* (at x n c) (at share n 0)))))
