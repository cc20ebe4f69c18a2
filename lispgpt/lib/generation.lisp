; Entries that generate, made of an entry of tokens and positions that gives logits.  `(generate logits)` is `(decoding
; logits)`, and has the runtime run what it makes (runtime/generate.py says how).
;
;   prefill       [tokens positions]             the model's logits, `next`: the most probable tokens, and `report`: how
;                                                clearly they win, see `best-and-report`
;   decode-greedy [tokens positions]             the same for one position
;   decode-drawn  [tokens positions sampling]    the same with tokens drawn at random (see sampling.lisp)
;   decode-adjusted [tokens positions sampling penalties bias counts]
;                                                the same of logits with penalties and biases, see `adjusted-logits`;
;                                                `report`: that of the best tokens, with those drawn in their places,
;                                                and the logarithms of their probabilities in the model's own logits, an
;                                                f32's bits
;   decode-steered [tokens positions sampling mask penalties bias counts]
;                                                tokens of which each sequence draws its own, or takes the most probable
;                                                where its top-k is 1, by its own penalties and biases, where it has some
;                                                (its repeat penalty is not 0), among those that its mask lets; `report`:
;                                                as for decode-adjusted, but those drawn are clear; `tops`: as many of the
;                                                most probable tokens as the last of its penalties says, each with its
;                                                logarithm of probability
;   verify-draft  [tokens positions]             `next` and `report` after each of the positions: what a draft is
;                                                checked by
;   all-logits    [tokens positions]             `logits` after each of the positions
;   hidden-states [tokens positions]             `hidden`: what the model's last product, with the head, takes of each of
;                                                the positions: its embeddings
;   score-tokens  [tokens positions targets]     `losses`: how improbable each target is, and `next`, for each position
;
; Where steps can follow each other without the host, a step leaves its tokens and the positions after its own in its
; inputs, and running it again decodes the next ones.
(require-dialect arith gpu memref)

(def ahead (= (capability runs-ahead) 1))
(when ahead (require sampling) (require penalties) (require masks))
(def known-vocab (configured "vocab" 0))

; How many of the columns of logits [batch columns] are tokens.
(defn vocabulary [logits]
  (let [[rows columns] (if (= (rank logits) 2) (shape logits) [0 0])
        vocab (configured "vocab" columns)]
    (if (not (= rows (batch)))
      (error (str "`generate` wants one row of logits for each sequence, and got " (type logits)))
      (if (or (< vocab 1) (< columns vocab))
        (error (str "vocab is " vocab ", and the entry gives " columns " logits"))
        vocab))))

; A `next` that is no token (-1, or the largest i32) is for the host to see; the steps after it take token 0.
(kernel advance [next tokens positions sequences]
  {:means "advance"}
  (let [i (+ (* (block-id x) (capability subgroup-size)) (thread-id x))]
    (when (arith.cmpi {:predicate "ult"} i (: sequences index))
      (let [token (memref.load next i)
            known (arith.cmpi {:predicate "ult"} token (: 2147483647 i32))]
        (memref.store (select known token (: 0 i32)) tokens i)
        (memref.store (+ (memref.load positions i) (: 1 i32)) positions i)))))

(defn most-probable [model tokens positions]
  (let [logits (first (results (model tokens positions)))
        [next report] (best-and-report logits (vocabulary logits))]
    {:logits logits :next next :report report}))

; What a step leaves in its inputs.
(defn advanced [next tokens positions]
  (let [lanes (capability subgroup-size)
        sequences (batch)]
    (launch advance [(blocks-of lanes sequences)] [lanes] next (in-place tokens) (in-place positions) sequences)))

; found, having left what the next step takes
(defmacro leaving [found tokens positions]
  `(let [found ~found]
     (when ahead
       (let [[following places] (advanced (nth (results found) 1) ~tokens ~positions)]
         (update! ~tokens following)
         (update! ~positions places)))
     found))

; The logits of each position, [rows columns], and how many of their columns are tokens
(defn every-logits [model tokens positions]
  (let [rows (* (dim tokens 0) (dim tokens 1))
        logits (first (results (at-every-position (fn [] (model (reshape tokens [rows]) (reshape positions [rows]))))))
        [found columns] (if (= (rank logits) 2) (shape logits) [0 0])]
    (if (not (= found rows))
      (error (str "logits of every position are wanted here, and the entry gives " (type logits) " for " rows
                  " positions: it should take those of the last ones by (last x) of nn")))
    [logits (configured "vocab" columns)]))

; What the head takes of each position, [rows width]
(defn hidden-states-of [model tokens positions]
  (let [found (last-multiplied (fn [] (every-logits model tokens positions)))]
    (if (= (dim found 0) (* (dim tokens 0) (dim tokens 1)))
      found
      (error (str "hidden states of every position are wanted here, and the head takes " (type found)
                  ": it should be a product by `linear` or `matmul-transposed` of nn")))))

; logits [rows columns], targets [rows] -> -ln(softmax(logits) at the target), [rows]
(defn losses-of [logits targets vocab]
  (let [[rows _] (shape logits)
        seen (slice logits [0 0] [rows vocab])
        top (maximum seen)
        powers (tensor [n rows i vocab] (exp (- (at seen n i) (at top n))))
        total (sum powers)]
    (tensor [n rows]
      (- (+ (at top n) (log (at total n))) (at seen n (at targets n))))))

(defn decoding [model]
  (restrict-shapes model (fn [batch positions] false))
  (entry prefill [tokens positions]
    (most-probable model tokens positions))
  (restrict-shapes prefill (fn [batch positions] (> positions 1)))
  (entry decode-greedy [tokens positions] {:shapes [{positions 1}]}
    (leaving (most-probable model tokens positions) tokens positions))
  (when ahead
    (entry decode-drawn [tokens positions (sampling [batch settings-words] i32)] {:shapes [{positions 1}]}
      (let [logits (first (results (model tokens positions)))]
        (leaving {:logits logits :next (draw-token logits sampling positions (vocabulary logits))} tokens positions))))
  (when (and ahead (> known-vocab 0))
    (entry decode-adjusted [tokens positions (sampling [batch settings-words] i32) (penalties [batch 3] f32)
                            (bias [batch known-vocab] f32) (counts [batch known-vocab] i32)]
      {:shapes []}
      (let [logits (first (results (model tokens positions)))
            vocab (vocabulary logits)
            adjusted (adjusted-logits logits penalties bias counts vocab)
            next (draw-token adjusted sampling positions vocab)
            report (token-report logits next (best-report adjusted vocab) vocab)]
        (update! counts (counted next counts))
        (leaving {:logits logits :next next :report report} tokens positions))))
  (when (and ahead (> known-vocab 0))
    (entry decode-steered [tokens positions (sampling [batch settings-words] i32)
                           (mask [batch (blocks-of 32 known-vocab)] i32) (penalties [batch 4] f32)
                           (bias [batch known-vocab] f32) (counts [batch known-vocab] i32)]
      {:shapes []}
      (let [logits (first (results (model tokens positions)))
            vocab (vocabulary logits)
            let-through (masked-logits (adjusted-logits logits penalties bias counts vocab) mask vocab)
            next (draw-token let-through sampling positions vocab)
            [report tops] (steered-report logits next (best-report let-through vocab) sampling penalties vocab)]
        (update! counts (counted next counts))
        (leaving {:logits logits :next next :report report :tops tops} tokens positions))))
  (entry verify-draft [(tokens [batch length] i32) (positions [batch length] i32)] {:shapes []}
    (let [[logits vocab] (every-logits model tokens positions)
          [next report] (best-and-report logits vocab)]
      {:next next :report report}))
  (entry all-logits [(tokens [batch length] i32) (positions [batch length] i32)] {:shapes []}
    {:logits (first (every-logits model tokens positions))})
  (entry hidden-states [(tokens [batch length] i32) (positions [batch length] i32)] {:shapes []}
    {:hidden (hidden-states-of model tokens positions)})
  (entry score-tokens [(tokens [batch length] i32) (positions [batch length] i32) (targets [batch length] i32)] {:shapes []}
    (let [[logits vocab] (every-logits model tokens positions)
          targets (reshape targets [(dim logits 0)])]
      {:losses (losses-of logits targets vocab) :next (best-token logits vocab)})))
